package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
)

const (
	rowsPerKind = 50 // that one call of SendDue sends
	// workersPerKind is how many rows of one kind a replica sends at once. The client's own rate limit bounds them all
	// together.
	workersPerKind = 8
)

// SendNow sends committed rows, in their order. It stops at the first one that cannot be sent, and leaves it and the
// rest to SendDue, which may send any of them at any time. It goes on if ctx is cancelled, because the payer's browser
// may go away.
func (o *Outbox) SendNow(ctx context.Context, rows []id.Outbox) {
	for _, row := range rows {
		if err := o.attempt(context.WithoutCancel(ctx), row); err != nil {
			o.log.WarnContext(ctx, "an outbox row is left to SendDue", "row", row, "err", err)
			return
		}
	}
}

// SendDue sends the rows that are due and returns how many it sent. Run it every few seconds, on any number of
// replicas.
func (o *Outbox) SendDue(ctx context.Context) (n int, err error) {
	due, err := o.d.Q.DueOutboxKinds(ctx, o.moneyless())
	if err != nil {
		return 0, fmt.Errorf("read due kinds of outbox rows: %w", err)
	}
	var rest []dbq.DueOutboxKindsRow
	for _, k := range due {
		if !o.kinds[k.Kind].First {
			rest = append(rest, k)
			continue
		}
		sent, err := o.sendKind(ctx, k.Kind, k.Due)
		if n += sent; err != nil {
			return n, err
		}
	}
	// Kinds do not wait for each other, so that many slow or failing rows of one kind do not delay the others.
	sent, errs := make([]int, len(rest)), make([]error, len(rest))
	var all sync.WaitGroup
	for i, k := range rest {
		all.Go(func() { sent[i], errs[i] = o.sendKind(ctx, k.Kind, k.Due) })
	}
	all.Wait()
	for _, s := range sent {
		n += s
	}
	return n, errors.Join(errs...)
}

// sendKind sends the due rows of one kind, at most rowsPerKind, several at once.
func (o *Outbox) sendKind(ctx context.Context, kind string, due int64) (n int, err error) {
	due = min(due, rowsPerKind)
	var claimed, sent atomic.Int64
	var g errgroup.Group
	for range min(workersPerKind, due) {
		g.Go(func() error {
			for claimed.Add(1) <= due && ctx.Err() == nil && o.client.BackingOff() == 0 {
				row, err := o.d.Q.ClaimNextOutbox(ctx, o.lease(kind).Seconds(), kind, o.moneyless())
				if db.NoRows(err) {
					return nil
				}
				if err == nil {
					err = o.sendRow(ctx, dbq.ClaimOutboxRow(row))
				}
				if err != nil {
					return fmt.Errorf("send %s %s: %w", kind, row.ID, err)
				}
				sent.Add(1)
			}
			return nil
		})
	}
	err = g.Wait() // the first error; the others are alike
	return int(sent.Load()), err
}

// attempt sends one row and books the answer. It does nothing if the row is not due or another sender has it. Errors
// are the database's; Stripe's are booked.
func (o *Outbox) attempt(ctx context.Context, id id.Outbox) error {
	kind, err := o.d.Q.OutboxKind(ctx, id)
	if err != nil {
		return fmt.Errorf("read outbox row %s: %w", id, err)
	}
	row, err := o.d.Q.ClaimOutbox(ctx, o.lease(kind).Seconds(), id, o.moneyless())
	if db.NoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim outbox row %s: %w", id, err)
	}
	return o.sendRow(ctx, row)
}

// sendRow makes the call of a claimed row and books the answer.
func (o *Outbox) sendRow(ctx context.Context, r dbq.ClaimOutboxRow) error {
	k, known := o.kinds[r.Kind]
	if !known {
		return fmt.Errorf("no sender of %q is registered", r.Kind)
	}
	age := time.Duration(r.AgeS * float64(time.Second))
	row := Row{
		Kind:     r.Kind,
		Ref:      r.Ref,
		Key:      r.IdemKey,
		Params:   r.Params,
		Attempts: int(r.Attempts),
		Old:      age > keyLife || r.Mismatch,
	}
	result, book, err := k.sender.Send(ctx, o.client, row)
	if e := stripe.As(err); e != nil {
		if r.Mismatch && age < mismatchWait && e.Code == CodeGivenUp {
			// The first request under the key may still be running. Not found now does not mean that nothing was done.
			e = &stripe.Error{
				Outcome: stripe.Unknown,
				Code:    stripe.CodeKeyReused,
				Message: "the key was used with other parameters, and its object is not found yet",
			}
		}
		return o.bookFailure(ctx, k.sender, r, row, e)
	}
	if err != nil {
		return err
	}
	return o.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := book(ctx, tx); err != nil {
			return err
		}
		return finish(ctx, tx, r.ID, stateDone, result, "")
	})
}

// bookFailure stores when a row is sent again, or books that Stripe refuses it.
func (o *Outbox) bookFailure(ctx context.Context, s Sender, r dbq.ClaimOutboxRow, row Row, e *stripe.Error) error {
	switch e.Outcome {
	case stripe.Later, stripe.Unknown:
		state := statePending
		if e.Outcome == stripe.Unknown {
			state = stateUnknown
		}
		wait := min(maxWait, time.Second<<min(r.Attempts, 10))
		if stripe.IsBackOff(e) {
			wait = max(wait, o.client.BackingOff())
		}
		o.log.WarnContext(ctx, "a request to Stripe failed", "outbox", r.ID, "kind", r.Kind, "ref", r.Ref,
			"outcome", e.Outcome, "code", e.Code, "again_in", wait)
		return o.d.Q.PostponeOutbox(ctx, dbq.PostponeOutboxParams{
			State:    state,
			Error:    e.Error(),
			WaitS:    wait.Seconds(),
			Mismatch: e.Code == stripe.CodeKeyReused,
			ID:       r.ID,
		})
	}
	o.log.WarnContext(ctx, "Stripe rejected a request", "outbox", r.ID, "kind", r.Kind, "ref", r.Ref, "err", e)
	return o.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.Refused(ctx, tx, row, e); err != nil {
			return err
		}
		return finish(ctx, tx, r.ID, stateFailed, e.Payment, e.Error())
	})
}

func finish(ctx context.Context, tx *db.Tx, row id.Outbox, state, result, problem string) error {
	err := tx.Q.FinishOutbox(ctx, dbq.FinishOutboxParams{State: state, ResultID: result, Error: problem, ID: row})
	if err != nil {
		return fmt.Errorf("finish outbox row %s: %w", row, err)
	}
	return nil
}
