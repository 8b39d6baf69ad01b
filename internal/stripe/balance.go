package stripe

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// ClockSkew is how far Stripe's clock may be ahead of PostgreSQL's. Test clocks of Stripe's are months ahead.
const ClockSkew = 365 * 24 * time.Hour

// BalanceTx is one change of what Stripe holds for the platform.
type BalanceTx struct {
	ID        string // txn_…
	Type      string // charge, refund, refund_failure, adjustment, transfer, payout, stripe_fee, …
	Source    string // ch_…, re_…, dp_…, tr_…, po_…; empty for some
	Payment   string // pi_… of a charge
	Invoice   string // in_… of a charge that paid one
	Transfer  string // tr_… of a reversal
	Cents     int64  // before the fee; negative: out of it
	FeeCents  int64
	Currency  string
	CreatedAt time.Time
}

// Funds is what Stripe holds for the platform in one currency, in cents. Any of them may be below zero.
type Funds struct {
	Currency  string // ISO 4217, upper case
	Available int64  // can be sent now
	Pending   int64  // on its way into Available
	Reserved  int64  // kept for connected accounts that are below zero; in neither of the others
}

// Funds asks what Stripe holds for the platform now, one for each currency that it knows, ordered by it.
func (c *Client) Funds(ctx context.Context) ([]Funds, error) {
	params := &stripe.BalanceParams{}
	params.Context = ctx
	b, err := c.api.Balance.Get(params)
	if err != nil {
		return nil, failure(err)
	}
	by := map[string]*Funds{}
	of := func(a *stripe.Amount) *Funds {
		name := strings.ToUpper(string(a.Currency))
		if by[name] == nil {
			by[name] = &Funds{Currency: name}
		}
		return by[name]
	}
	for _, a := range b.Available {
		of(a).Available += a.Amount
	}
	for _, a := range b.Pending {
		of(a).Pending += a.Amount
	}
	for _, a := range b.ConnectReserved {
		of(a).Reserved += a.Amount
	}
	var out []Funds
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[name])
	}
	return out, nil
}

// BalanceTxs calls each with the changes from one moment (inclusive, to the second) to another (exclusive), newest
// first, page by page, until it returns an error.
func (c *Client) BalanceTxs(ctx context.Context, from, until time.Time, each func(BalanceTx) error) error {
	params := &stripe.BalanceTransactionListParams{CreatedRange: &stripe.RangeQueryParams{
		GreaterThanOrEqual: from.Unix(),
		LesserThan:         until.Unix(),
	}}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	params.AddExpand("data.source")
	it := c.api.BalanceTransactions.List(params)
	for it.Next() {
		if err := each(balanceTx(it.BalanceTransaction())); err != nil {
			return err
		}
	}
	return failure(it.Err())
}

func balanceTx(b *stripe.BalanceTransaction) BalanceTx {
	out := BalanceTx{
		ID:        b.ID,
		Type:      string(b.Type),
		Cents:     b.Amount,
		FeeCents:  b.Fee,
		Currency:  strings.ToUpper(string(b.Currency)),
		CreatedAt: time.Unix(b.Created, 0).UTC(),
	}
	if s := b.Source; s != nil {
		out.Source = s.ID
		if s.Charge != nil && s.Charge.PaymentIntent != nil {
			out.Payment = s.Charge.PaymentIntent.ID
		}
		if s.Charge != nil && s.Charge.Invoice != nil {
			out.Invoice = s.Charge.Invoice.ID
		}
		if s.TransferReversal != nil && s.TransferReversal.Transfer != nil {
			out.Transfer = s.TransferReversal.Transfer.ID
		}
	}
	return out
}
