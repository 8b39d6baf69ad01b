package cluster

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// clusterSSH becomes ssh, so that terminals, signals and exit codes are ssh's own.
func clusterSSH(s *base.Session) *cobra.Command {
	var node int
	var identity string
	cmd := &cobra.Command{
		Use:   "ssh CLUSTER [-- SSH-ARGUMENT…]",
		Short: "Open a shell on a rank with ssh and your SSH key",
		Long: `Open a shell on a rank of a running cluster with ssh and one of your SSH keys. The image needs
neither sshd nor a shell. Arguments after -- are passed to ssh: options, or a command to run.

The gateway's host keys come from the platform, so ssh does not ask whether to trust them. Without this command: ssh -p
PORT CLUSTER.RANK@GATEWAY; scp, sftp, -L, -J and VS Code Remote work the same way.`,
		Example: `  muster cluster ssh train
  muster cluster ssh train --node 1 -- nvidia-smi
  muster cluster ssh train -- -L 8888:localhost:8888`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); len(args) == 0 || (n < 0 && len(args) > 1) || n > 1 || n == 0 {
				return fault.New(fault.Invalid, "muster cluster ssh takes CLUSTER, and after -- arguments for ssh; see muster "+
					"cluster ssh --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			cl, err := base.FindCluster(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			gateway, err := c.SSHKeys.GetSSHGateway(cmd.Context())
			if err != nil {
				return err
			}
			known, err := keepHostKeys(cmd, gateway)
			if err != nil {
				return fmt.Errorf("keep the gateway's host keys: %w", err)
			}
			if keys, err := client.All(cmd.Context(), c.SSHKeys.List, client.PageOf{}); err == nil {
				cmd.PrintErr(keyNote(keys, localKeys(cmd.Context(), identity)))
			}
			return becomeSSH(cmd, gateway, known, identity, fmt.Sprintf("%s.%d", cl, node), args[1:])
		},
	}
	cmd.Flags().IntVar(&node, "node", 0, "the rank")
	cmd.Flags().StringVarP(&identity, "identity", "i", "", "file of the private key (default: ssh's own)")
	return cmd
}

func becomeSSH(cmd *cobra.Command, gateway client.SSHGateway, known, identity, user string, rest []string) error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return fault.New(fault.NotFound, "ssh is not installed on this machine; on Debian and Ubuntu: apt-get install "+
			"openssh-client")
	}
	host, port, err := net.SplitHostPort(gateway.Address)
	if err != nil {
		return fmt.Errorf("the platform names %q as its gateway: %w", gateway.Address, err)
	}
	args := []string{"ssh", "-p", port, "-l", user, "-o", "UserKnownHostsFile=" + strconv.Quote(known), "-o",
		"StrictHostKeyChecking=yes"}
	if identity != "" {
		args = append(args, "-i", identity, "-o", "IdentitiesOnly=yes")
	}
	// ssh takes options before the host; the first word that is none begins the command.
	options := 0
	for options < len(rest) && strings.HasPrefix(rest[options], "-") {
		if options++; len(rest[options-1]) == 2 && strings.ContainsAny(rest[options-1][1:], "bcDEeFIiJLlmOoPpRSWw") &&
			options < len(rest) {
			options++
		}
	}
	args = append(append(append(args, rest[:options]...), host), rest[options:]...)
	return syscall.Exec(program, args, base.EnvironFrom(cmd.Context()))
}

// keepHostKeys writes the host keys of the gateway to a file next to the stored login, and returns the file's name.
func keepHostKeys(cmd *cobra.Command, g client.SSHGateway) (string, error) {
	login, err := base.LoginFile(cmd.Context())
	if err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(g.Address)
	if err != nil {
		return "", err
	}
	name := host
	if port != "22" {
		name = "[" + host + "]:" + port
	}
	var b strings.Builder
	for _, k := range g.HostKeys {
		fmt.Fprintf(&b, "%s %s\n", name, k)
	}
	dir := filepath.Dir(login)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "known_hosts-*")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(b.String())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	path := filepath.Join(dir, "known_hosts-"+host+"-"+port)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, err
}
