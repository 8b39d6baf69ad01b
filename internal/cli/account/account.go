// Package account holds the commands about a user's own login, password, sessions, tokens, SSH keys and organisation.
package account

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// Command is muster account.
func Command(s *base.Session) *cobra.Command {
	s.Argument("SESSION", base.Names(s, func(c *client.Client) base.Lister[client.Session] {
		return base.Unpaged(c.Account.ListSessions)
	}, func(v client.Session) []string { return []string{base.Described(v.ID.String(), v.Address)} }))
	return base.Noun("account", "Your password, your sessions and your data", accountPassword(s), accountSessions(s),
		accountExport(s), accountDelete(s))
}

func accountExport(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Export your personal data as JSON, without secrets", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := s.Client(cmd).Account.Export(cmd.Context())
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(append(data, '\n'))
			return err
		},
	}
}

func accountDelete(s *base.Session) *cobra.Command {
	var confirm string
	var giveUp bool
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete your account and data; without --confirm, show what prevents it",
		Args:  base.Exactly(),
		Long: `Erase your data at once and for good. The password is asked for. It is refused while clusters run,
money is left, a dispute, payment or payout is open, a card is saved, or you are the only member of an organisation with
hosts. Receipts and other documents are kept until their retention is over.`,
		Example: "  muster account export > my-data.json\n  muster account delete\n  muster account delete --confirm " +
			"ada@example.com",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			if confirm == "" {
				d, err := c.Account.GetDeletion(cmd.Context())
				return s.Result(cmd, d, err, func(p *base.Printer) {
					if len(d.Reasons) == 0 {
						p.Line("Nothing is in the way: muster account delete --confirm YOUR-E-MAIL")
					}
					for _, r := range d.Reasons {
						p.Line("%s", r)
					}
				})
			}
			if _, err := s.Login(cmd.Context()); err != nil {
				return err // before the user types a password
			}
			password, err := base.HiddenLine(cmd, "Password")
			if err != nil {
				return err
			}
			if password == "" {
				return fault.New(fault.Invalid, "the password is asked for, or read from standard input")
			}
			return c.Account.DeleteMe(cmd.Context(), client.DeleteMeRequest{Password: password, Confirm: confirm,
				GiveUp: giveUp})
		},
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "your e-mail address")
	cmd.Flags().BoolVar(&giveUp, "give-up-balance", false, "give up the money that is left")
	return cmd
}
