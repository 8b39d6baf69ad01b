package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// LoginCommand is muster login.
func LoginCommand(s *base.Session) *cobra.Command {
	var email string
	cmd := &cobra.Command{
		Use:   "login [SERVER]",
		Short: "Store a platform's address and an API token",
		Long: `Store a platform's address and a token for it, in a file that only you can read.

The token is prompted for, or read from standard input; it is never an argument, which others on this machine could see.
With --sign-up a new account is created, and its password is prompted for instead. With --profile NAME the login is
stored beside others; see muster profile.`,
		Example: `  muster login https://muster.example
  printf %s "$TOKEN" | muster login https://muster.example
  muster login https://muster.example --sign-up ada@example.com
  muster login https://muster.example --profile work`,
		Args: base.AtMost("SERVER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			stored, err := base.ReadLogins(ctx)
			if err != nil {
				return err
			}
			name := s.ProfileOf(ctx, stored)
			if err := base.CheckProfile(name); err != nil {
				return err
			}
			server := base.FirstOf(append(args, s.Server, base.Variable(ctx, "MUSTER_SERVER"),
				stored.Profiles[name].Server)...)
			if server == "" {
				return fault.New(fault.Invalid, "name the platform: muster login https://your.platform")
			}
			token, err := obtainToken(s, cmd, server, email)
			if err != nil {
				return err
			}
			c, err := s.Connect(cmd, base.Login{Server: server, Token: token})
			if err != nil {
				return err
			}
			me, err := c.Me(ctx)
			if err != nil {
				return err
			}
			stored.Profiles[name] = base.Login{Server: c.Server(), Token: token}
			stored.Current = name
			path, err := base.WriteLogins(ctx, stored)
			if err != nil {
				return fmt.Errorf("store the login: %w", err)
			}
			return s.Show(cmd, me, func(p *base.Printer) {
				p.Line("Logged in to %s as %s for %s.", c.Server(), me.User.Email, me.Org.Name)
				p.Line("Stored as profile %s in %s.", name, path)
			})
		},
	}
	cmd.Flags().StringVar(&email, "sign-up", "", "create an account with this e-mail address")
	return cmd
}

func obtainToken(s *base.Session, cmd *cobra.Command, server, email string) (string, error) {
	if email == "" {
		if t := base.Variable(cmd.Context(), "MUSTER_TOKEN"); t != "" {
			return t, nil
		}
		t, err := base.Secret(cmd, "Token (create one in the dashboard, under Account)")
		if err == nil && t == "" {
			err = fault.New(fault.Invalid, "no token was given")
		}
		return t, err
	}
	password, err := base.HiddenLine(cmd, "Password (at least 10 characters)")
	if err != nil {
		return "", err
	}
	c, err := s.Connect(cmd, base.Login{Server: server})
	if err != nil {
		return "", err
	}
	created, err := c.SignUp(cmd.Context(), email, password, "")
	return created.Token, err
}
