package stripe

import (
	"context"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

const (
	metaPayout   = "payout"
	metaReversal = "reversal"
)

// CodeNoBalance is Stripe's code for a transfer of more than it holds for the platform now. Nothing happened; later it
// may.
const CodeNoBalance = "balance_insufficient"

// NewTransfer sends money to a connected account.
type NewTransfer struct {
	Payout   string `json:"payout"`  // prefixed id, kept as metadata and transfer group
	Account  string `json:"account"` // acct_…
	Cents    int64  `json:"cents"`
	Currency string `json:"currency"` // ISO 4217, upper case
}

// Transfer is money sent to a connected account.
type Transfer struct {
	ID        string // tr_…
	Payout    string // from its metadata; empty for one that is not ours
	Account   string // acct_…
	Cents     int64
	Currency  string
	Reversals []Reversal // what came back of it, in no order
}

// Reversal is a part of a transfer that was taken back.
type Reversal struct {
	ID       string // trr_…
	Reversal string // from its metadata; empty for one that was not asked for by us
	Cents    int64
}

// CreateTransfer sends money. One that Stripe refuses is an Error with outcome Rejected or Missing.
func (c *Client) CreateTransfer(ctx context.Context, key string, p NewTransfer) (Transfer, error) {
	params := &stripe.TransferParams{
		Amount:        stripe.Int64(p.Cents),
		Currency:      stripe.String(strings.ToLower(p.Currency)),
		Destination:   stripe.String(p.Account),
		TransferGroup: stripe.String(p.Payout),
	}
	params.AddMetadata(metaPayout, p.Payout)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	t, err := c.api.Transfers.New(params)
	if err != nil {
		return Transfer{}, failure(err)
	}
	return c.transfer(ctx, t)
}

// Transfer asks for the present state of a transfer.
func (c *Client) Transfer(ctx context.Context, id string) (Transfer, error) {
	params := &stripe.TransferParams{}
	params.Context = ctx
	t, err := c.api.Transfers.Get(id, params)
	if err != nil {
		return Transfer{}, failure(err)
	}
	return c.transfer(ctx, t)
}

// FindTransfer looks for a payout's transfer; nil when there is none. It finds what a lost answer to CreateTransfer has
// left behind.
func (c *Client) FindTransfer(ctx context.Context, payout string) (*Transfer, error) {
	params := &stripe.TransferListParams{TransferGroup: stripe.String(payout)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.Transfers.List(params)
	for it.Next() {
		if t := it.Transfer(); t.Metadata[metaPayout] == payout {
			out, err := c.transfer(ctx, t)
			return &out, err
		}
	}
	return nil, failure(it.Err())
}

// TransfersTo lists the last transfers to an account, newest first, at most 100, without their reversals.
func (c *Client) TransfersTo(ctx context.Context, account string) (out []Transfer, err error) {
	params := &stripe.TransferListParams{Destination: stripe.String(account)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	params.Single = true
	it := c.api.Transfers.List(params)
	for it.Next() {
		t := it.Transfer()
		out = append(out, Transfer{
			ID:       t.ID,
			Payout:   t.Metadata[metaPayout],
			Account:  account,
			Cents:    t.Amount,
			Currency: strings.ToUpper(string(t.Currency)),
		})
	}
	return out, failure(it.Err())
}

// transfer reads a transfer with all its reversals: the object itself shows the last ten.
func (c *Client) transfer(ctx context.Context, t *stripe.Transfer) (Transfer, error) {
	out := Transfer{
		ID:       t.ID,
		Payout:   t.Metadata[metaPayout],
		Cents:    t.Amount,
		Currency: strings.ToUpper(string(t.Currency)),
	}
	if t.Destination != nil {
		out.Account = t.Destination.ID
	}
	if t.Reversals == nil {
		return out, nil
	}
	if !t.Reversals.HasMore {
		for _, r := range t.Reversals.Data {
			out.Reversals = append(out.Reversals, reversal(r))
		}
		return out, nil
	}
	params := &stripe.TransferReversalListParams{ID: stripe.String(t.ID)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.TransferReversals.List(params)
	for it.Next() {
		out.Reversals = append(out.Reversals, reversal(it.TransferReversal()))
	}
	return out, failure(it.Err())
}

func reversal(r *stripe.TransferReversal) Reversal {
	return Reversal{ID: r.ID, Reversal: r.Metadata[metaReversal], Cents: r.Amount}
}

// NewReversal takes back a part of a transfer, or all of it.
type NewReversal struct {
	Reversal string `json:"reversal"` // ours, kept as metadata
	Transfer string `json:"transfer"` // tr_…
	Cents    int64  `json:"cents"`
}

// ReverseTransfer takes money back. More than is left of the transfer is an Error with outcome Rejected.
func (c *Client) ReverseTransfer(ctx context.Context, key string, p NewReversal) (Reversal, error) {
	params := &stripe.TransferReversalParams{ID: stripe.String(p.Transfer), Amount: stripe.Int64(p.Cents)}
	params.AddMetadata(metaReversal, p.Reversal)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	r, err := c.api.TransferReversals.New(params)
	if err != nil {
		return Reversal{}, failure(err)
	}
	return reversal(r), nil
}
