package payment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
)

// Kinds of outbox rows.
const (
	kindCustomer = "customer.create"
	kindPayment  = "payment.create"
	kindCheckout = "checkout.create"
	kindCancel   = "payment.cancel"
	kindSetup    = "setup.create"
	kindDetach   = "card.detach"
	kindRefund   = "refund.create"
)

// States of an outbox row:
//
//	pending   to be said, or to be said again: the last attempt surely did nothing
//	sent      an attempt is under way, or died on the way
//	unknown   the last attempt may have taken effect
//	done      said, and the answer is booked
//	failed    will never be accepted
//
// The first three are due at next_at, always with the same key.
const (
	statePending = "pending"
	stateUnknown = "unknown"
	stateDone    = "done"
	stateFailed  = "failed"
)

const (
	attemptFor = 90 * time.Second // longer than a call may take: nobody else takes up the row meanwhile
	maxWait    = 5 * time.Minute  // between attempts
	// keyLife is how long a key is used: an hour less than Stripe remembers it.
	keyLife   = 23 * time.Hour
	batchRows = 50
	// workersPerKind is how many rows of one kind a replica sends at once. The client's own rate limit bounds them all
	// together.
	workersPerKind = 8
	// backOffWait is when work is tried again that was not done because Stripe limits our rate.
	backOffWait = 10 * time.Second
	// mismatchWait is how long a request whose key was used with other parameters is looked up before it counts as not
	// done.
	mismatchWait = time.Hour
)

// leaseOf is how long nobody else takes up a row of a kind: longer than all its calls may take.
func leaseOf(kind string) time.Duration {
	switch kind {
	case KindClose, KindSubscribe, KindUsage:
		return 4 * time.Minute // up to seven calls of 30 s
	}
	return attemptFor
}

// outgoing collects what one transaction decides to say to Stripe, in the order in which to say it.
type outgoing struct {
	tx   *db.Tx
	rows []id.Outbox
}

// add writes a row. A key that was written before is left as it is.
func (out *outgoing) add(ctx context.Context, kind, ref, key string, params any) error {
	b, err := json.Marshal(params)
	if err != nil {
		return err
	}
	row := dbq.InsertOutboxParams{ID: id.New[id.Outbox](), Kind: kind, Ref: ref, Params: b, IdemKey: key}
	n, err := out.tx.Q.InsertOutbox(ctx, row)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if n == 1 {
		out.rows = append(out.rows, row.ID)
	}
	return nil
}

// send says what was committed, here and now. What cannot be said is left to SendDue, which may take up any row at any
// point. The payer's browser may go away meanwhile; the attempts go on.
func (p *Payments) send(ctx context.Context, rows []id.Outbox) {
	for _, row := range rows {
		if err := p.attempt(context.WithoutCancel(ctx), row); err != nil {
			p.log.WarnContext(ctx, "left to the outbox", "row", row, "error", err)
			return
		}
	}
}

// SendDue says what is due to Stripe and says how many rows it dealt with. Run it every few seconds.
func (p *Payments) SendDue(ctx context.Context) (n int, err error) {
	kinds, err := p.d.Q.DueOutboxKinds(ctx)
	if err != nil {
		return 0, fmt.Errorf("payment: due rows: %w", err)
	}
	// Customers come first, because other rows need them. Kinds do not wait for each other, so that many slow or failing
	// rows of one kind do not delay the others.
	if i := slices.IndexFunc(kinds, func(k dbq.DueOutboxKindsRow) bool { return k.Kind == kindCustomer }); i >= 0 {
		if n, err = p.sendKind(ctx, kindCustomer, kinds[i].Due); err != nil {
			return n, err
		}
		kinds = slices.Delete(kinds, i, i+1)
	}
	sent, errs := make([]int, len(kinds)), make([]error, len(kinds))
	var all sync.WaitGroup
	for i, k := range kinds {
		all.Go(func() { sent[i], errs[i] = p.sendKind(ctx, k.Kind, k.Due) })
	}
	all.Wait()
	for _, s := range sent {
		n += s
	}
	return n, errors.Join(errs...)
}

// sendKind sends the due rows of one kind, at most batchRows, several at once.
func (p *Payments) sendKind(ctx context.Context, kind string, due int64) (n int, err error) {
	due = min(due, batchRows)
	var taken, did atomic.Int64
	var g errgroup.Group
	for range min(workersPerKind, due) {
		g.Go(func() error {
			for taken.Add(1) <= due && ctx.Err() == nil && p.stripe.BackingOff() == 0 {
				o, err := p.d.Q.ClaimNextOutbox(ctx, leaseOf(kind).Seconds(), kind)
				if db.NoRows(err) {
					return nil
				}
				if err == nil {
					err = p.sendRow(ctx, dbq.ClaimOutboxRow(o))
				}
				if err != nil {
					return fmt.Errorf("payment: outbox %s %s: %w", kind, o.ID, err)
				}
				did.Add(1)
			}
			return nil
		})
	}
	err = g.Wait() // the first error; the others are alike
	return int(did.Load()), err
}

// attempt says one row to Stripe and books the answer. A row that is not due, or that another sender has, is left
// alone. Errors are the database's; Stripe's are booked.
func (p *Payments) attempt(ctx context.Context, row id.Outbox) error {
	kind, err := p.d.Q.OutboxKind(ctx, row)
	if err != nil {
		return fmt.Errorf("outbox %s: %w", row, err)
	}
	o, err := p.d.Q.ClaimOutbox(ctx, leaseOf(kind).Seconds(), row)
	if db.NoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	return p.sendRow(ctx, o)
}

// sendRow makes the call of a claimed row and books the answer.
func (p *Payments) sendRow(ctx context.Context, o dbq.ClaimOutboxRow) error {
	age := time.Duration(o.AgeS * float64(time.Second))
	// A key that was used with other parameters never works again: what was done under it is looked up, as after a day.
	old := age > keyLife || o.Mismatch
	var fail, err error
	switch o.Kind {
	case kindCustomer:
		fail, err = p.sendCustomer(ctx, o)
	case kindPayment:
		fail, err = p.sendPayment(ctx, o, old)
	case kindCheckout:
		fail, err = p.sendCheckout(ctx, o, old)
	case kindCancel:
		fail, err = p.sendCancel(ctx, o)
	case kindSetup:
		fail, err = p.sendSetup(ctx, o)
	case kindDetach:
		fail, err = p.sendDetach(ctx, o)
	case kindRefund:
		fail, err = p.sendRefund(ctx, o, old)
	default:
		s, known := p.senders[o.Kind]
		if !known {
			return fmt.Errorf("no such kind %q", o.Kind)
		}
		fail, err = p.sendOther(ctx, s, o, old)
	}
	if err != nil || fail == nil {
		return err
	}
	if e := stripe.As(fail); o.Mismatch && age < mismatchWait && e != nil && e.Code == "given_up" {
		// The first request under the key may still be running. Not found now does not mean that nothing was done.
		fail = &stripe.Error{
			Outcome: stripe.Unknown,
			Code:    stripe.CodeKeyReused,
			Message: "the key was used with other parameters, and nothing is found yet",
		}
	}
	return p.bookFailure(ctx, o, fail)
}

// sendCustomer makes a customer. A second one, made a day later because no answer ever came, does no harm.
func (p *Payments) sendCustomer(ctx context.Context, o dbq.ClaimOutboxRow) (fail, err error) {
	var c stripe.Customer
	if err := json.Unmarshal(o.Params, &c); err != nil {
		return nil, err
	}
	org, err := id.Parse[id.Org](c.Org)
	if err != nil {
		return nil, err
	}
	customer, fail := p.stripe.CreateCustomer(ctx, o.IdemKey, c)
	if fail != nil {
		return fail, nil
	}
	return nil, p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.InsertStripeCustomer(ctx, org, customer); err != nil {
			return fmt.Errorf("customer: %w", err)
		}
		return finish(ctx, tx, o, stateDone, customer, "")
	})
}

// errNoCustomer: the customer is still to be made; its row comes first.
var errNoCustomer = &stripe.Error{Outcome: stripe.Later, Code: "no_customer", Message: "the customer is not made yet"}

func (p *Payments) sendPayment(ctx context.Context, o dbq.ClaimOutboxRow, old bool) (fail, err error) {
	var n stripe.NewPayment
	t, customer, err := p.subject(ctx, o, &n)
	if err != nil || customer == "" {
		return orNoCustomer(err)
	}
	n.Customer = customer
	if o.Attempts == 1 { // later it may have been paid already
		switch blocked, err := p.d.Q.MethodIsBlocked(ctx, n.Method); {
		case err != nil:
			return nil, fmt.Errorf("top-up %s: %w", t, err)
		case blocked:
			return &stripe.Error{Outcome: stripe.Declined, Code: "card_blocked",
				Message: "This card cannot be used here: its owner took an earlier payment back. Use another card."}, nil
		}
	}
	var pay stripe.Payment
	if !old {
		pay, fail = p.stripe.CreatePayment(ctx, o.IdemKey, n)
	} else {
		pay, fail = p.lookUp(ctx, customer, n.TopUp)
	}
	if fail != nil {
		return fail, nil
	}
	return nil, p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := p.settle(ctx, tx, t, pay, true); err != nil {
			return err
		}
		return finish(ctx, tx, o, stateDone, pay.ID, "")
	})
}

// lookUp finds what a key that Stripe has forgotten may have done. Found nothing, nothing is charged: a day later the
// payer does not expect it any more.
func (p *Payments) lookUp(ctx context.Context, customer, topup string) (stripe.Payment, error) {
	found, err := p.stripe.FindPayment(ctx, customer, topup)
	if err != nil {
		return stripe.Payment{}, err
	}
	if found == nil {
		return stripe.Payment{}, &stripe.Error{Outcome: stripe.Rejected, Code: "given_up",
			Message: "The payment service could not be reached for a day. Nothing was charged."}
	}
	return *found, nil
}

func (p *Payments) sendCheckout(ctx context.Context, o dbq.ClaimOutboxRow, old bool) (fail, err error) {
	var n stripe.NewCheckout
	t, customer, err := p.subject(ctx, o, &n)
	if err != nil || customer == "" {
		return orNoCustomer(err)
	}
	if old {
		return &stripe.Error{
			Outcome: stripe.Rejected,
			Code:    "given_up",
			Message: "The payment service could not be reached for a day.",
		}, nil
	}
	n.Customer = customer
	page, fail := p.stripe.CreateCheckout(ctx, o.IdemKey, n)
	if fail != nil {
		return fail, nil
	}
	return nil, p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.SetTopupCheckout(ctx, t, page.URL); err != nil {
			return fmt.Errorf("checkout: %w", err)
		}
		return finish(ctx, tx, o, stateDone, page.ID, "")
	})
}

// subject reads the frozen parameters, the top-up they are for, and its org's customer ("": not made yet).
func (p *Payments) subject(ctx context.Context, o dbq.ClaimOutboxRow,
	params any) (t id.TopUp, customer string, err error) {
	if err := json.Unmarshal(o.Params, params); err != nil {
		return t, "", err
	}
	if t, err = id.Parse[id.TopUp](o.Ref); err != nil {
		return t, "", err
	}
	row, err := p.d.Q.Topup(ctx, t)
	if err != nil {
		return t, "", fmt.Errorf("top-up %s: %w", t, err)
	}
	c, err := p.d.Q.StripeCustomer(ctx, row.OrgID)
	if err != nil && !db.NoRows(err) {
		return t, "", fmt.Errorf("customer: %w", err)
	}
	return t, c.CustomerID, nil
}

func orNoCustomer(err error) (fail, _ error) {
	if err != nil {
		return nil, err
	}
	return errNoCustomer, nil
}

// bookFailure books what Stripe did not do.
func (p *Payments) bookFailure(ctx context.Context, o dbq.ClaimOutboxRow, fail error) error {
	e := stripe.As(fail)
	if e == nil {
		return fail
	}
	switch e.Outcome {
	case stripe.Later, stripe.Unknown:
		state := statePending
		if e.Outcome == stripe.Unknown {
			state = stateUnknown
		}
		wait := min(maxWait, time.Second<<min(o.Attempts, 10))
		if stripe.IsBackOff(e) {
			wait = max(wait, p.stripe.BackingOff())
		}
		p.log.WarnContext(ctx, "Stripe did not answer as hoped", "outbox", o.ID, "kind", o.Kind, "ref", o.Ref, "outcome",
			e.Outcome, "code", e.Code, "again_in", wait)
		return p.d.Q.PostponeOutbox(ctx, dbq.PostponeOutboxParams{
			State:    state,
			Error:    e.Error(),
			WaitS:    wait.Seconds(),
			Mismatch: e.Code == stripe.CodeKeyReused,
			ID:       o.ID,
		})
	}
	if s, others := p.senders[o.Kind]; others {
		p.log.WarnContext(ctx, "Stripe refuses a request", "outbox", o.ID, "kind", o.Kind, "ref", o.Ref, "error", e)
		return p.refuseOther(ctx, s, o, e)
	}
	message := e.Message
	if e.Outcome != stripe.Declined && e.Code != "given_up" {
		message = "The payment could not be made. Nothing was charged."
		p.log.ErrorContext(ctx, "Stripe refuses a request", "outbox", o.ID, "kind", o.Kind, "ref", o.Ref, "error", e)
	}
	return p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if t, err := id.Parse[id.TopUp](o.Ref); err == nil && o.Kind != kindCancel {
			if err := p.fail(ctx, tx, t, Failed, message, e.Payment); err != nil {
				return err
			}
		}
		if ours, err := id.Parse[id.Refund](o.Ref); err == nil {
			r, err := tx.Q.RefundForUpdate(ctx, ours)
			if err != nil {
				return err
			}
			if err := p.failRefund(ctx, tx, r, "", "Stripe refuses it."); err != nil {
				return err
			}
		}
		if s, err := id.Parse[id.CardSetup](o.Ref); err == nil {
			if err := tx.Q.SettleCardSetup(ctx, string(Failed), "The page for saving a card could not be made.", s); err != nil {
				return err
			}
		}
		return finish(ctx, tx, o, stateFailed, e.Payment, e.Error())
	})
}

func finish(ctx context.Context, tx *db.Tx, o dbq.ClaimOutboxRow, state, result, problem string) error {
	err := tx.Q.FinishOutbox(ctx, dbq.FinishOutboxParams{State: state, ResultID: result, Error: problem, ID: o.ID})
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	return nil
}
