package payment

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// TopUps takes payments into the wallets of orgs.
type TopUps struct {
	*core
	customers *customers
	taxes     *Taxes
	receipts  *Receipts
	standings *Standings
	claims    *Claims
	cards     *Cards
	refunds   *Refunds
}

// TopUpRequest requests a payment into an org's wallet.
type TopUpRequest struct {
	Amount money.Nano // whole cents between MinTopUp and MaxTopUp
	Card   id.Card    // zero: the default one
	// Total is what the payer agreed to be charged, tax included; zero: whatever it is.
	Total money.Nano
	// ReturnURL is where the payer's bank or the checkout page sends them back to; empty: Config.ReturnURL.
	ReturnURL string
}

// Create pays into the org's wallet: with a saved card, else through the checkout page that the returned top-up names.
// Faults: Invalid (the amount), NotFound (the card), QuotaExceeded (the limit before verification), Conflict (Total is
// not what is charged now), Unavailable (the tax is not known, or sending is paused). With an idempotency key the same
// top-up is returned again, in its present state. A declined card is a top-up in state Failed, no error. When the
// payer's bank wants to authenticate them, the top-up is Pending and its ActionURL is the bank's page. When Stripe does
// not answer, the top-up is returned Pending and is settled later.
func (ts *TopUps) Create(ctx context.Context, payer account.Principal, r TopUpRequest,
	key idem.Request) (TopUp, idem.Outcome, error) {
	if err := checkAmount(r.Amount); err != nil {
		return TopUp{}, idem.Outcome{}, err
	}
	on, err := ts.taxes.on(ctx, payer.Org, tax.TopUp, r.Amount)
	if err != nil {
		return TopUp{}, idem.Outcome{}, fmt.Errorf("top up: %w", err)
	}
	var send []id.Outbox
	made, done, err := idem.Once(ctx, ts.d, key.ByReference(), func(ctx context.Context, tx *db.Tx) (
		ref reference[id.TopUp], err error) {
		ref.ID = id.New[id.TopUp]()
		send, err = ts.decide(ctx, tx, payer, ref.ID, r, on)
		return ref, err
	})
	if err != nil {
		return TopUp{}, idem.Outcome{}, fmt.Errorf("top up: %w", err)
	}
	if !done.Replayed {
		ts.out.SendNow(ctx, send)
	}
	t, err := ts.Get(ctx, payer.Org, made.ID)
	return t, done.Again(), err
}

// reference is what is remembered under an idempotency key of an object that is read in its present state when the
// request is repeated.
type reference[T any] struct {
	ID T `json:"id"`
}

func checkAmount(n money.Nano) error {
	switch {
	case n < MinTopUp || n > MaxTopUp:
		return fault.InvalidField("amount", "must be between %s and %s", MinTopUp.Plain(), MaxTopUp.Plain())
	case n%money.Cent != 0:
		return fault.InvalidField("amount", "must be whole cents")
	}
	return nil
}

// what is how a payment is named to the payer.
const what = "Muster credit"

// decide stores the top-up and queues what is sent to Stripe for it, in order.
func (ts *TopUps) decide(ctx context.Context, tx *db.Tx, payer account.Principal, topup id.TopUp, r TopUpRequest,
	on tax.Tax) ([]id.Outbox, error) {
	total := r.Amount + on.Amount()
	if r.Total != 0 && r.Total != total {
		return nil, fault.New(fault.Conflict, "the total with tax is now %s %s, not %s: check it and confirm again",
			inCents(total), ts.cfg.Currency, inCents(r.Total))
	}
	if err := refusePaused(ctx, tx.Q); err != nil {
		return nil, err
	}
	if err := ts.standings.allow(ctx, tx, payer.Org, r.Amount); err != nil {
		return nil, err
	}
	out := &outbox.Batch{Tx: tx}
	method, err := methodFor(ctx, out, payer, r.Card)
	if err != nil {
		return nil, err
	}
	n := newTopup{id: topup, org: payer.Org, user: payer.User, amount: r.Amount, tax: on}
	if err := ts.insert(ctx, tx, n); err != nil {
		return nil, err
	}
	if method == "" {
		method = ts.cfg.DefaultMethod
	}
	if err := ts.queuePayment(ctx, out, payer, n, method, cmp.Or(r.ReturnURL, ts.cfg.ReturnURL)); err != nil {
		return nil, err
	}
	return out.Rows, audit.Record(ctx, tx, payer.Event("billing.topup", topup.String(), map[string]any{
		"amount": r.Amount.String(),
		"total":  total.String(),
	}))
}

// methodFor returns the payment method of the org's card, or of its default one for the zero card; "" for none. It
// queues the org's customer if there is none. Fault: NotFound (the card).
func methodFor(ctx context.Context, out *outbox.Batch, payer account.Principal,
	card id.Card) (string, error) {
	method, err := ensureCustomer(ctx, out, payer)
	if err != nil || card.IsZero() {
		return method, err
	}
	c, err := out.Tx.Q.CardForUpdate(ctx, card, payer.Org)
	if db.NoRows(err) {
		return "", errNoCard()
	}
	if err != nil {
		return "", fmt.Errorf("lock card %s: %w", card, err)
	}
	return c.MethodID, nil
}

// queuePayment queues a payment with a method, or the checkout page on which the payer enters one ("").
func (ts *TopUps) queuePayment(ctx context.Context, out *outbox.Batch, payer account.Principal, n newTopup, method,
	back string) error {
	cents, named := int64((n.amount+n.tax.Amount())/money.Cent), ts.describe(n.amount, n.tax)
	meta, err := topupMeta(n.org, n.user, n.amount, n.tax, n.automatic)
	if err != nil {
		return err
	}
	if method != "" {
		return out.Add(ctx, kindPayment, n.id.String(), topupKey(n.id), stripe.NewPayment{
			TopUp:       n.id.String(),
			Method:      method,
			Cents:       cents,
			Currency:    ts.cfg.Currency,
			Description: named,
			ReturnURL:   back,
			Receipt:     payer.Email,
			Meta:        meta,
		})
	}
	return out.Add(ctx, kindCheckout, n.id.String(), topupKey(n.id), stripe.NewCheckout{
		TopUp:       n.id.String(),
		Cents:       cents,
		Currency:    ts.cfg.Currency,
		Description: named,
		SuccessURL:  back,
		CancelURL:   back,
		Receipt:     payer.Email,
		Meta:        meta,
	})
}

// newTopup is a top-up to be stored, with the tax that it bears for good.
type newTopup struct {
	id        id.TopUp
	org       id.Org
	user      id.User
	amount    money.Nano // without tax
	automatic bool       // by auto top-up
	tax       tax.Tax
}

// insert stores a top-up.
func (ts *TopUps) insert(ctx context.Context, tx *db.Tx, n newTopup) error {
	err := tx.Q.InsertTopup(ctx, dbq.InsertTopupParams{
		ID:         n.id,
		OrgID:      n.org,
		UserID:     n.user,
		Amount:     n.amount,
		Currency:   ts.cfg.Currency,
		Automatic:  n.automatic,
		Tax:        n.tax.Amount(),
		TaxPpm:     int32(n.tax.PPM),
		TaxName:    n.tax.Name,
		TaxReason:  string(n.tax.Reason),
		TaxCountry: n.tax.Country,
		TaxVatID:   n.tax.VATID,
	})
	if err != nil {
		return fmt.Errorf("insert top-up %s: %w", n.id, err)
	}
	return nil
}

// describe returns how a payment is named to its payer, on Stripe's page and receipt.
func (ts *TopUps) describe(amount money.Nano, t tax.Tax) string {
	switch {
	case t.Cents > 0:
		return fmt.Sprintf("%s %s %s, plus %s %s %s", what, inCents(amount), ts.cfg.Currency, tax.Label(t.Name, t.PPM),
			inCents(t.Amount()), ts.cfg.Currency)
	case t.Reason == tax.ReverseCharge:
		return what + " (reverse charge)"
	}
	return what
}

// Idempotency keys, which are also how a row is found again.
func topupKey(topup id.TopUp) string  { return "topup:" + topup.String() }
func ledgerKey(payment string) string { return "topup:" + payment }
func noticeKey(topup id.TopUp) string { return "topup:" + topup.String() }

// refusePaused refuses a new payment while sending is paused. Fault: Unavailable.
func refusePaused(ctx context.Context, q *dbq.Queries) error {
	s, err := outbox.SendingState(ctx, q)
	if err == nil && s.Paused {
		return fault.New(fault.Unavailable, "payments are paused at the moment: nothing was charged; try again later")
	}
	return err
}

// Get returns one of the org's top-ups; another org's is fault.NotFound.
func (ts *TopUps) Get(ctx context.Context, org id.Org, topup id.TopUp) (TopUp, error) {
	t, err := ts.d.Q.Topup(ctx, topup)
	if err != nil && !db.NoRows(err) {
		return TopUp{}, fmt.Errorf("read top-up %s: %w", topup, err)
	}
	if err != nil || t.OrgID != org {
		return TopUp{}, fault.New(fault.NotFound, "top-up not found")
	}
	return ts.view(t), nil
}

// List returns the org's top-ups, newest first, those older than before (zero: from the newest).
func (ts *TopUps) List(ctx context.Context, org id.Org, before id.TopUp, limit int) ([]TopUp, error) {
	rows, err := ts.d.Q.ListTopups(ctx, org, pgtype.UUID{Bytes: before.UUID(), Valid: true}, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read top-ups of %s: %w", org, err)
	}
	out := make([]TopUp, len(rows))
	for i, t := range rows {
		out[i] = ts.view(t)
	}
	return out, nil
}

func (ts *TopUps) view(t dbq.Topup) TopUp {
	return TopUp{
		ID:          t.ID,
		Amount:      t.Amount,
		Tax:         ViewTax(taxOf(t), t.Tax),
		Total:       t.Amount + t.Tax,
		Currency:    t.Currency,
		State:       State(t.State),
		CheckoutURL: t.CheckoutURL,
		Failure:     t.Failure,
		ActionURL:   t.ActionURL,
		ReceiptURL:  t.ReceiptURL,
		Automatic:   t.Automatic,
		CreatedAt:   t.CreatedAt,
		SettledAt:   t.SettledAt,
		Sandbox:     ts.cfg.Sandbox,
	}
}
