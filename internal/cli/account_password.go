package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func accountPassword(s *shell) *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use:   "password",
		Short: "Change your password",
		Args:  exactly(),
		Long: `Change your password. On a terminal the current and the new password are asked for without echo;
otherwise they are read from standard input, one on each line. Neither can be given as a flag, which others on this
machine could read.

All your sessions in browsers end. API tokens keep working unless --revoke-tokens is given; the token of this command
does in any case.`,
		Example: "  muster account password\n  printf '%s\\n%s\\n' \"$CURRENT\" \"$NEW\" | muster account password " +
			"--revoke-tokens",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, _, err := s.login(cmd.Context()); err != nil {
				return err // before anybody types a password
			}
			current, next, err := readNewPassword(cmd)
			if err != nil {
				return err
			}
			if err := s.client(cmd).ChangePassword(cmd.Context(), current, next, revoke); err != nil {
				return err
			}
			return s.show(cmd, map[string]bool{"changed": true}, func(p *printer) {
				p.line("Your password is changed. All your sessions in browsers have ended.")
			})
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke-tokens", false, "revoke your other API tokens too")
	return cmd
}

// readNewPassword asks for the current and the new password, for the new one twice where a person types it.
func readNewPassword(cmd *cobra.Command) (current, next string, err error) {
	if current, err = hiddenLine(cmd, "Current password"); err != nil {
		return "", "", err
	}
	if next, err = hiddenLine(cmd, "New password (at least 10 characters)"); err != nil {
		return "", "", err
	}
	if current == "" || next == "" {
		return "", "", fault.New(fault.Invalid, "give the current and the new password: type them, or send them to "+
			"standard input, one on each line")
	}
	if _, typed := terminal(cmd.InOrStdin()); typed {
		again, err := hiddenLine(cmd, "New password again")
		if err != nil {
			return "", "", err
		}
		if again != next {
			return "", "", fault.New(fault.Invalid, "the new passwords differ; nothing has changed")
		}
	}
	return current, next, nil
}

func accountSessions(s *shell) *cobra.Command {
	return noun("sessions", "The browsers in which you are signed in", sessionList(s), sessionEnd(s))
}

func sessionList(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List your sessions, last used first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.client(cmd).Sessions(cmd.Context())
			if err != nil {
				return err
			}
			return s.show(cmd, all.Items, func(p *printer) {
				if len(all.Items) == 0 {
					p.line("You are not signed in in any browser.")
					return
				}
				rows := make([][]string, len(all.Items))
				for i, x := range all.Items {
					rows[i] = []string{x.ID.String(), when(x.LastSeenAt), when(x.CreatedAt), x.Address, orDash(x.UserAgent)}
				}
				p.table([]string{"ID", "LAST USED", "SIGNED IN", "ADDRESS", "BROWSER"}, rows)
			})
		},
	}
}

func sessionEnd(s *shell) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "end [SESSION]", Short: "End one session, or all with --all", Args: atMost("SESSION"),
		Example: "  muster account sessions list\n  muster account sessions end ses_…\n  muster account sessions end --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return fault.New(fault.Invalid, "give the id of one session, or --all; muster account sessions list shows the ids")
			}
			c := s.client(cmd)
			var end []id.Session
			if all {
				sessions, err := c.Sessions(cmd.Context())
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
				if err := c.EndSession(cmd.Context(), x); err != nil && !(all && fault.Is(err, fault.NotFound)) {
					return err
				}
			}
			return s.show(cmd, map[string]int{"ended": len(end)}, func(p *printer) { p.line("Sessions ended: %d.", len(end)) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all your sessions")
	return cmd
}
