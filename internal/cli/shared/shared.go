// Package shared is muster shared: file systems that operators share with renters.
package shared

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/id"
)

// Command is muster shared.
func Command(s *base.Session) *cobra.Command {
	s.Argument("SHARED", base.Names(s, func(c *client.Client) base.Lister[client.SharedFS] {
		return base.Unpaged(c.Shared.List)
	}, func(b client.SharedFS) []string { return []string{base.Described(b.Name, b.Kind)} }))
	cmd := base.Noun("shared", "Shared file systems of operators, and your data there",
		list(s), declare(s), withdraw(s), erase(s))
	cmd.Example = `  muster shared list
  muster shared declare lab-nfs --kind nfs --quota 500
  muster shared erase lab-nfs
  muster shared withdraw lab-nfs`
	return cmd
}

func list(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List shared file systems, with your organisation's data there",
		Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Shared.List(cmd.Context())
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, f := range all.Items {
					rows[i] = []string{f.Name, f.ID.String(), base.FirstOf(f.Type, f.Kind), strconv.Itoa(f.Hosts),
						fmt.Sprintf("%d GB", f.QuotaGB), data(f.Data)}
				}
				p.TableOr("No host has a shared file system. Operators declare them: "+
					"muster shared declare NAME --kind nfs --quota GB",
					[]string{"NAME", "ID", "TYPE", "HOSTS", "QUOTA", "YOUR DATA"}, rows)
				for _, f := range all.Items {
					for _, x := range f.Problems {
						p.Line("%s on %s: %s", f.Name, x.Host, x.Problem)
					}
				}
			})
		},
	}
}

// data is what an organisation has on a file system, in words.
func data(d *client.SharedData) string {
	if d == nil {
		return "none"
	}
	text := fmt.Sprintf("%.1f GB", float64(d.UsedBytes)/1e9)
	switch {
	case d.Closed:
		text += ", over the quota"
	case d.DeleteAt != nil:
		text += ", deleted after " + d.DeleteAt.UTC().Format(time.DateOnly)
	}
	return text
}

func declare(s *base.Session) *cobra.Command {
	var n client.NewSharedFS
	cmd := &cobra.Command{
		Use: "declare NAME", Short: "Declare a shared file system of your hosts", Args: base.Exactly("NAME"),
		Long: `Declare a file system that several of your hosts have mounted, for renters to mount. Then start the agent of each
of these hosts with --shared NAME=PATH. The first host writes a marker there, by which the others recognise it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			n.Name = args[0]
			f, err := s.Client(cmd).Shared.Declare(cmd.Context(), n)
			return s.Result(cmd, f, err, func(p *base.Printer) {
				p.Line("Declared %s. Start the agents of its hosts with --shared %s=PATH.", f.Name, f.Name)
			})
		},
	}
	cmd.Flags().StringVar(&n.Kind, "kind", "other", "nfs, cephfs, gluster, lustre, beegfs, weka or other")
	base.Gigabytes(cmd.Flags(), &n.QuotaGB, "quota", 0, "what each organisation may store there")
	_ = cmd.MarkFlagRequired("quota")
	return cmd
}

// onShared is a command about one file system.
func onShared(s *base.Session, use, short, done string,
	f func(*cobra.Command, *client.Client, id.SharedFS) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " SHARED", Short: short, Args: base.Exactly("SHARED"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			fs, err := base.FindShared(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			err = f(cmd, c, fs)
			return s.Result(cmd, struct{}{}, err, func(p *base.Printer) { p.Line(done, args[0]) })
		},
	}
}

func withdraw(s *base.Session) *cobra.Command {
	return onShared(s, "withdraw", "End the declaration of a shared file system; what is on it stays there",
		"Withdrew %s.", func(cmd *cobra.Command, c *client.Client, fs id.SharedFS) error {
			return c.Shared.Withdraw(cmd.Context(), fs)
		})
}

func erase(s *base.Session) *cobra.Command {
	return onShared(s, "erase", "Delete your organisation's data on a shared file system",
		"A host will delete your organisation's data on %s.",
		func(cmd *cobra.Command, c *client.Client, fs id.SharedFS) error {
			return c.Shared.EraseData(cmd.Context(), fs)
		})
}
