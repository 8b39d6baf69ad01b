package account

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// SSHKeyCommand is muster ssh-key.
func SSHKeyCommand(s *base.Session) *cobra.Command {
	return base.Noun("ssh-key", "Manage the SSH keys that can log in to your clusters", sshKeyAdd(s), sshKeyList(s),
		sshKeyDelete(s))
}

func sshKeyAdd(s *base.Session) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Add a public SSH key from a file, or from standard input (-)",
		Example: "  muster ssh-key add ~/.ssh/id_ed25519.pub",
		Args:    base.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := base.ReadFile(cmd, args[0])
			if err != nil {
				return err
			}
			switch { // a private key must not even be sent
			case strings.Contains(string(raw), "PRIVATE KEY"):
				return fault.New(fault.Invalid, "%s holds a PRIVATE key; it was not sent. Add the .pub file next to it", args[0])
			case strings.Contains(string(raw), "PuTTY-User-Key-File-"):
				return fault.New(fault.Invalid, "%s holds a PRIVATE key of PuTTY's; it was not sent. Run puttygen %s -O "+
					"public-openssh -o key.pub, and add key.pub", args[0], args[0])
			case strings.HasPrefix(string(raw), "\xff\xfe"):
				return fault.New(fault.Invalid, "%s is in UTF-16: save it as UTF-8", args[0])
			}
			k, err := s.Client(cmd).SSHKeys.Add(cmd.Context(), client.AddSSHKeyRequest{Name: name,
				PublicKey: strings.TrimSpace(string(raw))})
			return s.Result(cmd, k, err, func(p *base.Printer) { p.Line("%s  %s  %s", k.ID, k.Name, k.Fingerprint) })
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "a name for you (default: the key's comment)")
	return cmd
}

func sshKeyList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisation's SSH keys", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := client.All(cmd.Context(), s.Client(cmd).SSHKeys.List, client.PageOf{})
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all))
				for i, k := range all {
					rows[i] = []string{k.ID.String(), k.Name, k.Fingerprint, base.When(k.CreatedAt)}
				}
				p.List("SSH keys", []string{"ID", "NAME", "FINGERPRINT", "ADDED"}, rows)
			})
		},
	}
}

func sshKeyDelete(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "delete KEY", Aliases: []string{"rm"}, Short: "Delete an SSH key; running clusters keep it",
		Example: "  muster ssh-key delete key_…",
		Args:    base.Exactly("KEY"), ValidArgsFunction: base.First(s.SSHKeys()),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := id.Parse[id.SSHKey](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "%q is not the id of an SSH key (key_…); muster ssh-key list lists them", args[0])
			}
			if err := s.Client(cmd).SSHKeys.Delete(cmd.Context(), k); err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"deleted": k.String()}, func(p *base.Printer) { p.Line("%s is deleted.", k) })
		},
	}
}
