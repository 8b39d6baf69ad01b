package payout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// PayDue pays every operator whose payout is due, and returns how many it paid. Run it every minute; any replica may,
// and a crash anywhere loses nothing and pays nothing twice.
func (p *Payouts) PayDue(ctx context.Context) (n int, err error) {
	if s, err := outbox.SendingState(ctx, p.d.Q); err != nil || s.Paused {
		return 0, err
	}
	due, err := p.d.Q.DuePayoutAccounts(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("claim payouts that are due: %w", err)
	}
	var errs []error
	for _, org := range due {
		if ctx.Err() != nil {
			break
		}
		var send []id.Outbox
		err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			send = nil
			made, err := p.decide(ctx, tx, org, true)
			if err == nil {
				send = made.send
			}
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("pay %s: %w", org, err))
			continue
		}
		p.out.SendNow(ctx, send)
		n += min(1, len(send))
	}
	return n, errors.Join(errs...)
}

// PayNow pays an operator outside the schedule, with a reason for the audit log. Only an admin may. Faults: Forbidden,
// Invalid, NotFound (no account), Conflict (nothing can be paid; the message has the reason). The transfer is made
// after the commit.
func (p *Payouts) PayNow(ctx context.Context, who account.Principal, org id.Org, reason string,
	once idem.Request) (Payout, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return Payout{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (Payout, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return Payout{}, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps "+
				"it")
		}
		made, err := p.decide(ctx, tx, org, false)
		if err != nil {
			return Payout{}, fmt.Errorf("pay %s: %w", org, err)
		}
		if made.why != "" {
			return Payout{}, fault.New(fault.Conflict, "nothing is paid: %s", made.why)
		}
		tx.AfterCommit(func() { p.out.SendNow(ctx, made.send) })
		r, err := tx.Q.Payout(ctx, made.payout)
		if err != nil {
			return Payout{}, fmt.Errorf("read payout %s: %w", made.payout, err)
		}
		return viewOf(r), audit.Record(ctx, tx, who.Event("payout.now", made.payout.String(), map[string]any{
			"org":    org.String(),
			"amount": r.Amount.String(),
			"reason": reason,
		}))
	})
}

// decided is a payout that was stored, or why there is none.
type decided struct {
	payout id.Payout
	send   []id.Outbox
	why    string
}

// decide stores the next payout of an org: all that can be paid, in whole cents, if that is enough. scheduled also
// moves the org to its next time.
func (p *Payouts) decide(ctx context.Context, tx *db.Tx, org id.Org, scheduled bool) (d decided, err error) {
	a, err := tx.Q.PayoutAccountForUpdate(ctx, org)
	if db.NoRows(err) {
		return d, fault.New(fault.NotFound, "the organisation has no payout account")
	}
	if err != nil {
		return d, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return d, err
	}
	onTheWay, err := tx.Q.PayoutPending(ctx, org, p.cfg.Currency)
	if err != nil {
		return d, err
	}
	sending, err := outbox.SendingState(ctx, tx.Q)
	if err != nil {
		return d, err
	}
	if d.why = obstacle(a, onTheWay, sending); d.why == "" && scheduled && a.NextAt.After(now) {
		d.why = "it is not time yet" // another replica paid
	}
	if d.why != "" {
		return d, nil
	}
	books, err := ledger.Lock(ctx, tx, ledger.HostPending(org, p.cfg.Currency), ledger.HostPayable(org, p.cfg.Currency),
		ledger.Transfers(p.cfg.Currency))
	if err != nil {
		return d, err
	}
	amount, owed, err := p.amount(ctx, tx.Q, books, org)
	if err != nil {
		return d, err
	}
	if scheduled {
		if err := tx.Q.SetPayoutNext(ctx, next(now, p.cfg.Every), org); err != nil {
			return d, err
		}
	}
	if d.why = p.tooLittle(amount, owed); d.why != "" {
		return d, nil
	}
	d.payout = id.New[id.Payout]()
	d.send, err = p.write(ctx, tx, books, a, d.payout, amount)
	return d, err
}

// amount returns what can be paid to an operator whose accounts are locked, in whole cents, and what the operator owes.
// What is in review covers nothing that was given back or is disputed: a review may refuse it.
func (p *Payouts) amount(ctx context.Context, q *dbq.Queries, books *ledger.Locked,
	org id.Org) (pays, owed money.Nano, err error) {
	c, err := claim.Of(ctx, q, org, p.cfg.Currency)
	if err != nil {
		return 0, 0, err
	}
	return wholeCents(c.Payable(books.Balance(ledger.HostPending(org, p.cfg.Currency)),
		books.Balance(ledger.HostPayable(org, p.cfg.Currency)))), c.Owed, nil
}

// write stores a payout, queues its transfer for Stripe and books that it is on its way.
func (p *Payouts) write(ctx context.Context, tx *db.Tx, books *ledger.Locked, a dbq.PayoutAccount, ours id.Payout,
	amount money.Nano) ([]id.Outbox, error) {
	ref := ours.String()
	if err := tx.Q.InsertPayout(ctx, dbq.InsertPayoutParams{
		ID:            ours,
		OrgID:         a.OrgID,
		StripeAccount: *a.StripeAccount,
		Amount:        amount,
		Currency:      p.cfg.Currency,
	}); err != nil {
		return nil, fmt.Errorf("insert payout %s: %w", ours, err)
	}
	send, err := outbox.Add(ctx, tx, kindTransfer, ref, "transfer:"+ref, stripe.NewTransfer{
		Payout:   ref,
		Account:  *a.StripeAccount,
		Cents:    int64(amount / money.Cent),
		Currency: p.cfg.Currency,
	})
	if err != nil {
		return nil, err
	}
	_, err = books.Post(ctx, ledger.Entry{
		Kind: "payout",
		Key:  "payout:" + ref + ":asked",
		Ref:  ref,
		Memo: "to your account at Stripe",
		Transfers: []ledger.Transfer{{
			Debit:  ledger.HostPayable(a.OrgID, p.cfg.Currency),
			Credit: ledger.Transfers(p.cfg.Currency),
			Amount: amount,
		}},
	})
	return send, err
}

// obstacle returns what keeps an account from being paid, however much there is; "" = nothing.
func obstacle(a dbq.PayoutAccount, onTheWay int64, sending outbox.Sending) string {
	switch {
	case sending.Paused:
		return "all sending of money is paused: " + sending.Reason
	case a.StripeAccount == nil || !a.Ready:
		return "the account at Stripe is not ready"
	case a.Stopped != "":
		return "payouts are stopped: " + a.Stopped
	case onTheWay > 0:
		return "a payout is on its way already"
	}
	return ""
}

// tooLittle returns why an amount is not paid to an operator who owes something; "" = it is enough.
func (p *Payouts) tooLittle(amount, owed money.Nano) string {
	if amount >= p.cfg.Minimum {
		return ""
	}
	why := fmt.Sprintf("%s can be paid, and the minimum is %s", amount.Plain(), p.cfg.Minimum.Plain())
	if owed > 0 {
		why += fmt.Sprintf("; %s are kept back for disputes of the organisation's own payments", owed.Plain())
	}
	return why
}

// wholeCents rounds an amount towards zero.
func wholeCents(n money.Nano) money.Nano { return n - n%money.Cent }

// Payout is money on its way to an operator, or there.
type Payout = client.OperatorPayout

// Reversal is what an admin requested to be taken back of a payout, and what has not come back.
type Reversal = client.PayoutReversal

// ReversalState is how far a reversal is.
type ReversalState = client.PayoutReversalState

const (
	ReversalRequested = client.PayoutReversalRequested // Stripe has yet to answer
	ReversalRefused   = client.PayoutReversalRefused   // nothing moved; may be requested again
)

// State of a payout.
type State = client.PayoutState

const (
	Pending = client.PayoutPending // Stripe has yet to answer
	Paid    = client.PayoutPaid    // in the operator's account at Stripe, which pays it on to their bank
	Failed  = client.PayoutFailed  // payable again; see Failure
)

func viewOf(r dbq.Payout) Payout {
	out := Payout{Org: r.OrgID, Payout: client.Payout{
		ID:        r.ID,
		Amount:    r.Amount,
		Currency:  r.Currency,
		State:     State(r.State),
		Reversed:  r.Reversed,
		Failure:   r.Failure,
		CreatedAt: r.CreatedAt,
		SettledAt: r.SettledAt,
	}}
	if r.StripeTransfer != nil {
		out.Transfer = *r.StripeTransfer
	}
	if r.ReversalState != "" {
		out.Reversal = &Reversal{
			State:   ReversalState(r.ReversalState),
			Amount:  r.ReversalAmount,
			Failure: r.ReversalFailure,
		}
	}
	return out
}

// Get returns one of the org's payouts; another's is fault.NotFound.
func (p *Payouts) Get(ctx context.Context, org id.Org, payout id.Payout) (Payout, error) {
	r, err := p.d.Q.Payout(ctx, payout)
	if err != nil && !db.NoRows(err) {
		return Payout{}, fmt.Errorf("read payout %s: %w", payout, err)
	}
	if err != nil || r.OrgID != org {
		return Payout{}, fault.New(fault.NotFound, "payout not found")
	}
	return viewOf(r), nil
}

// All lists the payouts of all operators, as List. Only an admin may; fault: Forbidden.
func (p *Payouts) All(ctx context.Context, who account.Principal, before id.Payout, limit int) ([]Payout, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.ListAllPayouts(ctx, pgtype.UUID{Bytes: before.UUID(), Valid: true}, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read payouts: %w", err)
	}
	out := make([]Payout, len(rows))
	for i, r := range rows {
		out[i] = viewOf(r)
	}
	return out, nil
}

// List returns the org's payouts, newest first, those before the given one (zero: from the newest), at most limit.
// Members of the org and admins see them. Fault: Forbidden.
func (p *Payouts) List(ctx context.Context, who account.Principal, org id.Org, before id.Payout,
	limit int) ([]Payout, error) {
	if who.Org != org {
		if err := account.RequireStaff(who); err != nil {
			return nil, err
		}
	}
	rows, err := p.d.Q.ListPayouts(ctx, org, pgtype.UUID{Bytes: before.UUID(), Valid: true}, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read payouts of %s: %w", org, err)
	}
	out := make([]Payout, len(rows))
	for i, r := range rows {
		out[i] = viewOf(r)
	}
	return out, nil
}
