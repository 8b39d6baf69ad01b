package account

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// TokenCommand is muster token.
func TokenCommand(s *base.Session) *cobra.Command {
	return base.Noun("token", "API tokens", tokenCreate(s), tokenList(s), tokenRevoke(s))
}

func tokenCreate(s *base.Session) *cobra.Command {
	var scopes []string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an API token; its secret is shown once",
		Example: "  muster token create ci --scope read --scope clusters --expires 720h",
		Args:    base.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := s.Client(cmd).Tokens.Create(cmd.Context(),
				client.CreateTokenRequest{Name: args[0], Scopes: scopes, ExpiresIn: int64(expires.Seconds())})
			return s.Result(cmd, t, err, func(p *base.Printer) {
				p.Line("%s", t.Secret)
				p.Line("Keep it now: it is not shown again. It may: %s.", strings.Join(t.Scopes, ", "))
			})
		},
	}
	cmd.Flags().StringArrayVar(&scopes, "scope", []string{"read"}, "read, clusters, hosts, billing or members; repeatable")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it works (default: until it is revoked)")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"read", "clusters", "hosts", "billing",
		"members"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func tokenList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your organisation's API tokens", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := client.All(cmd.Context(), s.Client(cmd).Tokens.List, client.PageOf{})
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all))
				for i, t := range all {
					rows[i] = []string{t.ID.String(), t.Name, "…" + t.Hint, strings.Join(t.Scopes, " "), base.When(t.CreatedAt),
						base.OrDash(base.WhenPtr(t.LastUsedAt)), base.OrDash(base.WhenPtr(t.ExpiresAt))}
				}
				p.List("tokens", []string{"ID", "NAME", "SECRET", "SCOPES", "CREATED", "LAST USED", "EXPIRES"}, rows)
			})
		},
	}
}

func tokenRevoke(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN", Aliases: []string{"rm"}, Short: "Revoke an API token at once", Args: base.Exactly("TOKEN"),
		Example:           "  muster token revoke tok_…",
		ValidArgsFunction: base.First(s.Tokens()),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := id.Parse[id.Token](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "want the id of a token, tok_…; see muster token list")
			}
			if err := s.Client(cmd).Tokens.Revoke(cmd.Context(), t); err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"revoked": t.String()}, func(p *base.Printer) {
				p.Line("%s no longer works.", t)
			})
		},
	}
}
