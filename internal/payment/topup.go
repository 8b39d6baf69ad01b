package payment

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripepay"
)

// TopUp pays amount into the org's wallet: at once with the saved card, else through the checkout page its answer
// names. amount is whole cents between MinTopUp and MaxTopUp, else fault.Invalid. With an idempotency key the same
// top-up is returned again, in its present state. A declined card is a top-up in state Failed, no error. When Stripe
// does not answer, the top-up is returned Pending and settles by itself.
func (p *Payments) TopUp(ctx context.Context, payer account.Principal, amount money.Nano, key idem.Request) (TopUp, error) {
	switch {
	case amount < MinTopUp || amount > MaxTopUp:
		return TopUp{}, fault.InvalidField("amount", "must be between %s and %s", MinTopUp, MaxTopUp)
	case amount%money.Cent != 0:
		return TopUp{}, fault.InvalidField("amount", "must be whole cents")
	}
	var ref struct {
		ID id.TopUp `json:"id"`
	}
	var send []id.Outbox
	err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		send = nil
		earlier, err := key.Begin(ctx, tx)
		if err != nil {
			return err
		}
		if earlier != nil {
			return json.Unmarshal(earlier.Body, &ref)
		}
		ref.ID = id.New[id.TopUp]()
		if send, err = p.decide(ctx, tx, payer, ref.ID, amount); err != nil {
			return err
		}
		_, err = key.Finish(ctx, tx, http.StatusCreated, ref)
		return err
	})
	if err != nil {
		return TopUp{}, fmt.Errorf("top up: %w", err)
	}
	// The rows are committed: what is tried here and now can be taken up by SendDue at any point. The payer's browser
	// may go away meanwhile; the attempt goes on.
	for _, row := range send {
		if err := p.attempt(context.WithoutCancel(ctx), row); err != nil {
			p.log.WarnContext(ctx, "top-up is left to the outbox", "topup", ref.ID, "error", err)
			break
		}
	}
	return p.Get(ctx, payer.Org, ref.ID)
}

// decide writes the top-up and what is to be said to Stripe, in the order in which to say it.
func (p *Payments) decide(ctx context.Context, tx *db.Tx, payer account.Principal, topup id.TopUp, amount money.Nano) ([]id.Outbox, error) {
	var send []id.Outbox
	add := func(kind, ref, key string, params any) error {
		b, err := json.Marshal(params)
		if err != nil {
			return err
		}
		row := dbq.InsertOutboxParams{ID: id.New[id.Outbox](), Kind: kind, Ref: ref, Params: b, IdemKey: key}
		n, err := tx.Q.InsertOutbox(ctx, row)
		if err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		if n == 1 {
			send = append(send, row.ID)
		}
		return nil
	}
	customer, err := tx.Q.StripeCustomer(ctx, payer.Org)
	switch {
	case db.NoRows(err):
		c := stripepay.Customer{Org: payer.Org.String(), Name: payer.OrgName, Email: payer.Email}
		if err := add(kindCustomer, payer.Org.String(), customerKey(payer.Org), c); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("customer: %w", err)
	}
	err = tx.Q.InsertTopup(ctx, dbq.InsertTopupParams{ID: topup, OrgID: payer.Org, UserID: payer.User, Amount: amount, Currency: p.cfg.Currency})
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	method := customer.PaymentMethod
	if method == "" {
		method = p.cfg.DefaultMethod
	}
	const what = "Muster credit"
	cents := int64(amount / money.Cent)
	if method != "" {
		err = add(kindPayment, topup.String(), topupKey(topup), stripepay.NewPayment{
			TopUp: topup.String(), Method: method, Cents: cents, Currency: p.cfg.Currency, Description: what})
	} else {
		err = add(kindCheckout, topup.String(), topupKey(topup), stripepay.NewCheckout{
			TopUp: topup.String(), Cents: cents, Currency: p.cfg.Currency, Description: what, SuccessURL: p.cfg.ReturnURL, CancelURL: p.cfg.ReturnURL})
	}
	if err != nil {
		return nil, err
	}
	return send, audit.Record(ctx, tx, payer.Event("billing.topup", topup.String(), map[string]any{"amount": amount.String()}))
}

// Idempotency keys, which are also how a row is found again.
func customerKey(org id.Org) string   { return "customer:" + org.String() }
func topupKey(topup id.TopUp) string  { return "topup:" + topup.String() }
func ledgerKey(payment string) string { return "topup:" + payment }
func noticeKey(topup id.TopUp) string { return "topup:" + topup.String() }

// Get is one of the org's top-ups; another org's is fault.NotFound.
func (p *Payments) Get(ctx context.Context, org id.Org, topup id.TopUp) (TopUp, error) {
	t, err := p.d.Q.Topup(ctx, topup)
	if err != nil && !db.NoRows(err) {
		return TopUp{}, fmt.Errorf("top-up %s: %w", topup, err)
	}
	if err != nil || t.OrgID != org {
		return TopUp{}, fault.New(fault.NotFound, "there is no such top-up")
	}
	return p.view(t), nil
}

// List is the org's top-ups, newest first, those older than before (zero: from the newest).
func (p *Payments) List(ctx context.Context, org id.Org, before id.TopUp, limit int) ([]TopUp, error) {
	rows, err := p.d.Q.ListTopups(ctx, org, pgtype.UUID{Bytes: before.UUID(), Valid: true}, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("top-ups of %s: %w", org, err)
	}
	out := make([]TopUp, len(rows))
	for i, t := range rows {
		out[i] = p.view(t)
	}
	return out, nil
}

func (p *Payments) view(t dbq.Topup) TopUp {
	return TopUp{
		ID: t.ID, Amount: t.Amount, Currency: t.Currency, State: State(t.State), CheckoutURL: t.CheckoutURL, Failure: t.Failure,
		CreatedAt: t.CreatedAt, SettledAt: t.SettledAt, Sandbox: p.cfg.Sandbox,
	}
}
