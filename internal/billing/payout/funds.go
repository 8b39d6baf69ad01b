package payout

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// awaitFunds lets a transfer wait while Stripe holds less for the platform than it needs, with a reason that the list
// of payouts shows. Stripe would refuse it, and repeat the refusal under the same key for a day.
func (p *Payouts) awaitFunds(ctx context.Context, client *stripe.Client, ours id.Payout, n stripe.NewTransfer) error {
	all, err := client.Funds(ctx)
	if err != nil {
		return err
	}
	var have stripe.Funds
	for _, f := range all {
		if f.Currency == n.Currency {
			have = f
		}
	}
	if n.Cents <= have.Available {
		return nil
	}
	if err := p.d.Q.SetPayoutWaiting(ctx, "It waits until money from renters' cards arrives at Stripe, which takes "+
		"days.", ours); err != nil {
		return fmt.Errorf("set why payout %s waits: %w", ours, err)
	}
	plain := func(cents int64) string { return (money.Nano(cents) * money.Cent).Plain() }
	return &stripe.Error{
		Outcome: stripe.Later,
		Code:    "awaiting_funds",
		Message: fmt.Sprintf("%s %s needed, %s available at Stripe, %s pending there",
			plain(n.Cents), n.Currency, plain(have.Available), plain(have.Pending)),
	}
}
