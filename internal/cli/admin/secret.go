package admin

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
)

func adminSecret(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "secret", Short: "How far secrets at rest are sealed with the present MUSTER_SECRET", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.Client(cmd).Admin.GetSealState(cmd.Context())
			return s.Result(cmd, x, err, func(p *base.Printer) {
				switch {
				case x.PassedAt == nil && !x.Rotating:
					p.Line("The secret has not been changed.")
				case x.PassedAt == nil:
					p.Line("Another secret is accepted, too. Nothing was looked at yet.")
				default:
					p.Line("%d clusters were sealed again; %d remain. Last looked at %s.", x.Resealed, x.Remaining,
						base.When(*x.PassedAt))
					switch {
					case x.Done && x.Rotating:
						p.Line("MUSTER_SECRET_PREVIOUS is not needed any more: remove it.")
					case x.Rotating:
						p.Line("MUSTER_SECRET_PREVIOUS is needed until %s, and while any remain.", base.When(*x.NeededTo))
					}
				}
			})
		},
	}
}
