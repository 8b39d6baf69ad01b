package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// LoginCommand is muster login.
func LoginCommand(s *base.Session) *cobra.Command {
	var email string
	cmd := &cobra.Command{
		Use:   "login [SERVER]",
		Short: "Save a platform's address and an API token",
		Long: `Remember a platform and a token for it, in a file only you can read.

The token is asked for, or read from standard input; it is never an argument, which others on this machine could see.
With --sign-up an account is made, and the password is asked for instead.`,
		Example: `  muster login https://muster.example
  printf %s "$TOKEN" | muster login https://muster.example
  muster login https://muster.example --sign-up ada@example.com`,
		Args: base.AtMost("SERVER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			stored, err := base.ReadLogin(ctx)
			if err != nil {
				return err
			}
			server := base.FirstOf(append(args, s.Server, base.Variable(ctx, "MUSTER_SERVER"), stored.Server)...)
			if server == "" {
				return fault.New(fault.Invalid, "say where: muster login https://your.platform")
			}
			token, err := obtainToken(cmd, server, email)
			if err != nil {
				return err
			}
			c, err := client.New(server, token, client.WithUserAgent("muster-cli/"+cmd.Root().Version))
			if err != nil {
				return err
			}
			me, err := c.Me(ctx)
			if err != nil {
				return err
			}
			path, err := base.WriteLogin(ctx, base.SavedLogin{Server: c.Server(), Token: token})
			if err != nil {
				return fmt.Errorf("keep the login: %w", err)
			}
			return s.Show(cmd, me, func(p *base.Printer) {
				p.Line("Logged in to %s as %s for %s.", c.Server(), me.User.Email, me.Org.Name)
				p.Line("Kept in %s.", path)
			})
		},
	}
	cmd.Flags().StringVar(&email, "sign-up", "", "make an account with this e-mail address")
	return cmd
}

func obtainToken(cmd *cobra.Command, server, email string) (string, error) {
	if email == "" {
		if t := base.Variable(cmd.Context(), "MUSTER_TOKEN"); t != "" {
			return t, nil
		}
		t, err := base.Secret(cmd, "Token (make one in the dashboard, under Account)")
		if err == nil && t == "" {
			err = fault.New(fault.Invalid, "no token was given")
		}
		return t, err
	}
	password, err := base.HiddenLine(cmd, "Password (at least 10 characters)")
	if err != nil {
		return "", err
	}
	c, err := client.New(server, "", client.WithUserAgent("muster-cli/"+cmd.Root().Version))
	if err != nil {
		return "", err
	}
	made, err := c.SignUp(cmd.Context(), email, password, "")
	return made.Token, err
}
