package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func tokenCommand(s *shell) *cobra.Command {
	return noun("token", "API tokens", tokenCreate(s), tokenList(s), tokenRevoke(s))
}

func tokenCreate(s *shell) *cobra.Command {
	var scopes []string
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an API token; its secret is shown once",
		Example: "  muster token create ci --scope read --scope clusters --expires 720h",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := s.client(cmd).CreateToken(cmd.Context(), args[0], scopes, expires)
			return s.result(cmd, t, err, func(p *printer) {
				p.line("%s", t.Secret)
				p.line("Keep it now: it is not shown again. It may: %s.", strings.Join(t.Scopes, ", "))
			})
		},
	}
	cmd.Flags().StringArrayVar(&scopes, "scope", []string{"read"}, "read, clusters, hosts or billing; repeatable")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it works (default: until it is revoked)")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"read", "clusters", "hosts", "billing"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func tokenList(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List your organisation's API tokens", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := client.All(cmd.Context(), s.client(cmd).Tokens)
			return s.result(cmd, all, err, func(p *printer) {
				rows := make([][]string, len(all))
				for i, t := range all {
					rows[i] = []string{t.ID.String(), t.Name, "…" + t.Hint, strings.Join(t.Scopes, " "), when(t.CreatedAt),
						orDash(whenPtr(t.LastUsedAt)), orDash(whenPtr(t.ExpiresAt))}
				}
				p.table([]string{"ID", "NAME", "SECRET", "SCOPES", "CREATED", "LAST USED", "EXPIRES"}, rows)
			})
		},
	}
}

func tokenRevoke(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN", Short: "Revoke an API token at once", Args: exactly("TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := id.Parse[id.Token](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "want the id of a token, tok_…; see muster token list")
			}
			if err := s.client(cmd).RevokeToken(cmd.Context(), t); err != nil {
				return err
			}
			return s.show(cmd, map[string]string{"revoked": t.String()}, func(p *printer) { p.line("%s no longer works.", t) })
		},
	}
}
