package account

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func accountPassword(s *base.Session) *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use:   "password",
		Short: "Change your password",
		Args:  base.Exactly(),
		Long: `Change your password. On a terminal the current and the new password are asked for without echo;
otherwise they are read from standard input, one on each line. Neither can be given as a flag, which others on this
machine could read.

All your sessions in browsers end. API tokens keep working unless --revoke-tokens is given; the token of this command
does in any case.`,
		Example: "  muster account password\n  printf '%s\\n%s\\n' \"$CURRENT\" \"$NEW\" | muster account password " +
			"--revoke-tokens",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := s.Login(cmd.Context()); err != nil {
				return err // before the user types a password
			}
			current, next, err := readNewPassword(cmd)
			if err != nil {
				return err
			}
			_, err = s.Client(cmd).Account.ChangePassword(cmd.Context(),
				client.ChangePasswordRequest{Old: current, New: next, RevokeTokens: revoke})
			if err != nil {
				return err
			}
			return s.Show(cmd, map[string]bool{"changed": true}, func(p *base.Printer) {
				p.Line("Your password is changed. All your sessions in browsers have ended.")
			})
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke-tokens", false, "revoke your other API tokens too")
	return cmd
}

// readNewPassword asks for the current and the new password, and for the new one twice on a terminal.
func readNewPassword(cmd *cobra.Command) (current, next string, err error) {
	if current, err = base.HiddenLine(cmd, "Current password"); err != nil {
		return "", "", err
	}
	if next, err = base.HiddenLine(cmd, "New password (at least 10 characters)"); err != nil {
		return "", "", err
	}
	if current == "" || next == "" {
		return "", "", fault.New(fault.Invalid, "give the current and the new password: type them, or send them to "+
			"standard input, one on each line")
	}
	if _, typed := base.Terminal(cmd.InOrStdin()); typed {
		again, err := base.HiddenLine(cmd, "New password again")
		if err != nil {
			return "", "", err
		}
		if again != next {
			return "", "", fault.New(fault.Invalid, "the new passwords differ; nothing has changed")
		}
	}
	return current, next, nil
}

func accountSessions(s *base.Session) *cobra.Command {
	return base.Noun("sessions", "The browsers in which you are signed in", sessionList(s), sessionEnd(s))
}

func sessionList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List your sessions, last used first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Account.ListSessions(cmd.Context())
			if err != nil {
				return err
			}
			return s.Show(cmd, all.Items, func(p *base.Printer) {
				if len(all.Items) == 0 {
					p.Line("You are not signed in in any browser.")
					return
				}
				rows := make([][]string, len(all.Items))
				for i, x := range all.Items {
					rows[i] = []string{x.ID.String(), base.When(x.LastSeenAt), base.When(x.CreatedAt), x.Address,
						base.OrDash(x.UserAgent)}
				}
				p.Table([]string{"ID", "LAST USED", "SIGNED IN", "ADDRESS", "BROWSER"}, rows)
			})
		},
	}
}

func sessionEnd(s *base.Session) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "end [SESSION]", Short: "End one session, or all with --all", Args: base.AtMost("SESSION"),
		Example: "  muster account sessions list\n  muster account sessions end ses_…\n  muster account sessions end --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return fault.New(fault.Invalid, "give the id of one session, or --all; muster account sessions list shows the ids")
			}
			c := s.Client(cmd)
			var end []id.Session
			if all {
				sessions, err := c.Account.ListSessions(cmd.Context())
				if err != nil {
					return err
				}
				for _, x := range sessions.Items {
					end = append(end, x.ID)
				}
			} else {
				x, err := id.Parse[id.Session](args[0])
				if err != nil || x.IsZero() {
					return fault.New(fault.Invalid, "%q is not the id of a session; muster account sessions list shows the ids",
						args[0])
				}
				end = []id.Session{x}
			}
			for _, x := range end {
				if err := c.Account.EndSession(cmd.Context(), x); err != nil && !(all && fault.Is(err, fault.NotFound)) {
					return err
				}
			}
			return s.Show(cmd, map[string]int{"ended": len(end)}, func(p *base.Printer) {
				p.Line("Sessions ended: %d.", len(end))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all your sessions")
	return cmd
}
