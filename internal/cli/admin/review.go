package admin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminReviews(s *base.Session) *cobra.Command {
	var after string
	var limit int
	var waiting bool
	cmd := &cobra.Command{
		Use:   "reviews",
		Short: "List linked operators and renters and the earnings in review, newest first",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListPayoutReviews(cmd.Context(),
				client.PayoutReviewsQuery{PageOf: client.PageOf{Limit: limit, After: after}, Waiting: waiting})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				for _, r := range page.Items {
					printReview(p, r)
				}
				p.Line("%d reviews.", len(page.Items))
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "reviews at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	cmd.Flags().BoolVar(&waiting, "waiting", false, "only those with something to decide on")
	return cmd
}

func printReview(p *base.Printer, r client.PayoutReview) {
	in := " " + r.Currency
	p.Facts("Review", r.ID.String(), "Operator", r.Operator.String(), "Renter", r.Renter.String(), "Linked by",
		strings.Join(r.Reasons, ", "), "Suggested", string(r.Advice),
		"In review", base.Nano(r.InReview)+in, "Released", base.Nano(r.Released)+in, "Refused", base.Nano(r.Refused)+in,
		"Since",
		base.When(r.CreatedAt),
		"Decided", base.WhenPtr(r.DecidedAt), "Because", r.Decision)
	p.Line("")
}

// adminDecide is a command that decides a review.
// decideReview approves or refuses what is in review.
type decideReview = func(context.Context, id.PayoutReview, client.ReviewDecision) (client.PayoutReview, error)

func adminDecide(s *base.Session, verb, short string, do func(*client.Client) decideReview) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: verb + " REVIEW", Short: short, Args: base.Exactly("REVIEW"),
		Example: "  muster admin " + verb + " review_… --reason 'a subsidiary, known to us'",
		RunE: func(cmd *cobra.Command, args []string) error {
			review, err := id.Parse[id.PayoutReview](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "REVIEW: want the id of a review; see muster admin reviews")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
			}
			r, err := do(s.Client(cmd))(cmd.Context(), review, client.ReviewDecision{Reason: reason})
			return s.Result(cmd, r, err, func(p *base.Printer) { printReview(p, r) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	return cmd
}
