package account

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// LoginCommand is muster login.
func LoginCommand(s *base.Session) *cobra.Command {
	var how loginWay
	cmd := &cobra.Command{
		Use:   "login [SERVER]",
		Short: "Store a platform's address and an API token",
		Long: `Store a platform's address and a token for it, in a file that only you can read.

On a terminal, this shows a code and opens a page of the platform in your browser, where you are signed in and enter it.
With --no-browser it only shows the page's address, which you can open on another machine. With --with-token, or if
standard input is not a terminal, it reads a token instead; a token is never an argument, which others on this machine
could see. With --sign-up a new account is created, and its password is prompted for. With --profile NAME the login is
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
			token, err := obtainToken(s, cmd, server, how)
			if err != nil {
				return err
			}
			c, err := s.Connect(cmd, base.Login{Server: server, Token: token})
			if err != nil {
				return err
			}
			me, err := c.Account.GetMe(ctx)
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
				p.Line("Logged in to %s as %s, in the organisation %s.", c.Server(), me.User.Email, me.Org.Name)
				p.Line("Stored as profile %s in %s.", name, path)
			})
		},
	}
	cmd.Flags().StringVar(&how.email, "sign-up", "", "create an account with this e-mail address")
	cmd.Flags().BoolVar(&how.noBrowser, "no-browser", false, "show the address of the page that logs you in, and do "+
		"not open it")
	cmd.Flags().BoolVar(&how.withToken, "with-token", false, "prompt for a token")
	cmd.MarkFlagsMutuallyExclusive("sign-up", "no-browser", "with-token")
	return cmd
}

// loginWay is how a login gets its token.
type loginWay struct {
	email                string // of a new account
	noBrowser, withToken bool
}

func obtainToken(s *base.Session, cmd *cobra.Command, server string, how loginWay) (string, error) {
	email := how.email
	if email == "" {
		if t := base.TokenVariable(cmd.Context()); t != "" && !how.noBrowser {
			return t, nil
		}
		if _, terminal := base.Terminal(cmd.InOrStdin()); how.noBrowser || terminal && !how.withToken {
			return grantedToken(s, cmd, server, how.noBrowser)
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
	created, err := c.Account.SignUp(cmd.Context(), client.SignUpRequest{Email: email, Password: password, Name: ""})
	return created.Token, err
}

// grantedToken shows a code, and waits until a person has entered it in their browser.
func grantedToken(s *base.Session, cmd *cobra.Command, server string, noBrowser bool) (string, error) {
	ctx := cmd.Context()
	c, err := s.Connect(cmd, base.Login{Server: server})
	if err != nil {
		return "", err
	}
	l, err := c.Account.BeginDeviceLogin(ctx, client.BeginDeviceLoginRequest{Machine: thisMachine(ctx)})
	if err != nil {
		return "", err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Open %s and enter this code: %s\nEnter it only on the platform's own page, and "+
		"give it to "+
		"no one.\n", l.VerificationURL, l.UserCode)
	if !noBrowser {
		if err := base.OpenBrowser(cmd, l.VerificationURL); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
		}
	}
	for wait := time.Duration(l.IntervalMS) * time.Millisecond; ; {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(wait):
		}
		r, err := c.Account.PollDeviceLogin(ctx, client.PollDeviceLoginRequest{DeviceCode: l.DeviceCode})
		if err != nil {
			return "", err
		}
		switch r.Status {
		case "granted":
			return r.Token, nil
		case "denied":
			return "", fault.New(fault.Forbidden, "the login was denied")
		case "expired":
			return "", fault.New(fault.Unauthorized, "the code was not entered in time: run muster login again")
		case "slow_down":
			wait += 5 * time.Second
		}
	}
}

// thisMachine is what a person knows this machine by: user@host.
func thisMachine(ctx context.Context) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "an unnamed machine"
	}
	if user := base.Variable(ctx, "USER"); user != "" {
		return user + "@" + host
	}
	return host
}
