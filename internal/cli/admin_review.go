package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminReviews(s *shell) *cobra.Command {
	var after string
	var limit int
	var waiting bool
	cmd := &cobra.Command{
		Use: "reviews", Short: "List linked operators and renters and the earnings in review, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).PayoutReviews(cmd.Context(), waiting, client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) {
				for _, r := range page.Items {
					printReview(p, r)
				}
				p.line("%d reviews.", len(page.Items))
				printNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "reviews at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	cmd.Flags().BoolVar(&waiting, "waiting", false, "only those with something to decide on")
	return cmd
}

func printReview(p *printer, r client.PayoutReview) {
	in := " " + r.Currency
	p.facts("Review", r.ID.String(), "Operator", r.Operator.String(), "Renter", r.Renter.String(), "Linked by",
		strings.Join(r.Reasons, ", "), "Suggested", r.Advice,
		"In review", nano(r.InReview)+in, "Released", nano(r.Released)+in, "Refused", nano(r.Refused)+in, "Since",
		when(r.CreatedAt),
		"Decided", whenPtr(r.DecidedAt), "Because", r.Decision)
	p.line("")
}

// adminDecide is a decision on a review.
func adminDecide(s *shell, verb, short string, do func(*client.Client, context.Context, id.PayoutReview,
	string) (client.PayoutReview, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: verb + " REVIEW", Short: short, Args: exactly("REVIEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			review, err := id.Parse[id.PayoutReview](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "REVIEW: want the id of a review; see muster admin reviews")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
			}
			r, err := do(s.client(cmd), cmd.Context(), review, reason)
			return s.result(cmd, r, err, func(p *printer) { printReview(p, r) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	return cmd
}
