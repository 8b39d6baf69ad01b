package cli

import (
	"github.com/spf13/cobra"
)

func adminSecret(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "secret", Short: "How far secrets at rest are sealed with the present MUSTER_SECRET", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.client(cmd).SealState(cmd.Context())
			return s.result(cmd, x, err, func(p *printer) {
				switch {
				case x.PassedAt == nil && !x.Rotating:
					p.line("The secret has not been changed.")
				case x.PassedAt == nil:
					p.line("Another secret is accepted, too. Nothing was looked at yet.")
				default:
					p.line("%d clusters were sealed again; %d remain. Last looked at %s.", x.Resealed, x.Remaining, when(*x.PassedAt))
					switch {
					case x.Done && x.Rotating:
						p.line("MUSTER_SECRET_PREVIOUS is not needed any more: remove it.")
					case x.Rotating:
						p.line("MUSTER_SECRET_PREVIOUS is needed until %s, and while any remain.", when(*x.NeededTo))
					}
				}
			})
		},
	}
}
