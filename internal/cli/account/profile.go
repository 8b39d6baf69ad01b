package account

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// ProfileCommand is muster profile.
func ProfileCommand(s *base.Session) *cobra.Command {
	return base.Noun("profile", "Logins stored on this machine", profileList(s), profileUse(s))
}

// profile is a stored login without its secret.
type profile struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Current bool   `json:"current"`
}

func profileList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the stored logins", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			stored, err := base.ReadLogins(cmd.Context())
			all := []profile{}
			for _, name := range stored.Names() {
				all = append(all, profile{name, stored.Profiles[name].Server, name == s.ProfileOf(cmd.Context(), stored)})
			}
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all))
				for i, v := range all {
					current := ""
					if v.Current {
						current = "current"
					}
					rows[i] = []string{v.Name, v.Server, current}
				}
				p.TableOr("No login is stored. Store one: muster login https://your.platform",
					[]string{"NAME", "SERVER", ""}, rows)
			})
		},
	}
}

func profileUse(s *base.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Use a stored login from now on", Args: base.Exactly("NAME"),
		Example: "  muster profile use work",
		RunE: func(cmd *cobra.Command, args []string) error {
			stored, err := base.ReadLogins(cmd.Context())
			if err != nil {
				return err
			}
			l, ok := stored.Profiles[args[0]]
			if !ok {
				return fault.New(fault.NotFound, "profile %q not found; there is: %s", args[0],
					base.OrDash(strings.Join(stored.Names(), ", ")))
			}
			stored.Current = args[0]
			if _, err := base.WriteLogins(cmd.Context(), stored); err != nil {
				return fmt.Errorf("store the login: %w", err)
			}
			return s.Show(cmd, profile{args[0], l.Server, true}, func(p *base.Printer) {
				p.Line("Commands use %s on %s.", args[0], l.Server)
			})
		},
	}
	cmd.ValidArgsFunction = base.First(s.Profiles)
	return cmd
}

// LogoutCommand is muster logout.
func LogoutCommand(s *base.Session) *cobra.Command {
	var revoke bool
	cmd := &cobra.Command{
		Use: "logout", Short: "Delete a stored login", Args: base.Exactly(),
		Long: `Delete the stored login of the current profile, or of --profile NAME. The token stays valid on the
platform unless --revoke is given.`,
		Example: "  muster logout --revoke\n  muster logout --profile work",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			stored, err := base.ReadLogins(ctx)
			if err != nil {
				return err
			}
			name := s.ProfileOf(ctx, stored)
			l, ok := stored.Profiles[name]
			if !ok {
				return fault.New(fault.NotFound, "no login is stored for profile %s", name)
			}
			if revoke {
				if err := revokeToken(s, cmd, l); err != nil {
					return err
				}
			}
			delete(stored.Profiles, name)
			if stored.Current == name {
				stored.Current = base.FirstOf(append(stored.Names(), base.DefaultProfile)...)
			}
			if _, err := base.WriteLogins(ctx, stored); err != nil {
				return fmt.Errorf("delete the stored login: %w", err)
			}
			return s.Show(cmd, profile{name, l.Server, false}, func(p *base.Printer) {
				p.Line("Logged out of %s (profile %s).", l.Server, name)
			})
		},
	}
	cmd.Flags().BoolVar(&revoke, "revoke", false, "also revoke the token on the platform")
	return cmd
}

// revokeToken revokes the token of a login.
func revokeToken(s *base.Session, cmd *cobra.Command, l base.Login) error {
	c, err := s.Connect(cmd, l)
	if err != nil {
		return err
	}
	me, err := c.Account.GetMe(cmd.Context())
	if err != nil {
		return err
	}
	return c.Tokens.Revoke(cmd.Context(), me.TokenID)
}

// WhoamiCommand is muster whoami.
func WhoamiCommand(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Show the user, the organisation and the scopes of the login in use", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			me, err := c.Account.GetMe(cmd.Context())
			return s.Result(cmd, me, err, func(p *base.Printer) {
				p.Facts("User", me.User.Email, "Organisation", me.Org.Name, "Organisation id", me.Org.ID.String(),
					"Platform", c.Server(), "Token", me.TokenID.String(), "Scopes", strings.Join(me.Scopes, ", "))
			})
		},
	}
}
