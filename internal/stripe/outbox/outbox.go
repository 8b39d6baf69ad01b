// Package outbox sends requests to Stripe that a transaction has decided.
//
// Invariants:
//   - What must be sent to Stripe is a row of stripe_outbox, written in the transaction that decides it, with frozen
//     parameters and an idempotency key. If the transaction is rolled back, nothing is sent; once it is committed, the
//     row is sent at least once.
//   - A row is always sent under the same key. Stripe remembers keys for 24 hours; after that, and if Stripe answers
//     that the key was used with other parameters, the sender looks up what the row did before it sends anything
//     (Row.Old).
//   - One replica at a time sends a row. A replica that dies leaves its row to the others when its lease ends.
//   - What Stripe answers is booked in the transaction that ends the row.
//   - While sending is paused (SetSending), no row that moves money is sent.
package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
)

// States of a row:
//
//	pending   to be sent; the last attempt, if there was one, had no effect
//	sent      an attempt is under way, or its process died
//	unknown   the last attempt may have had an effect
//	done      sent, and Stripe's answer is booked
//	failed    Stripe will never accept it
//
// Rows in the first three states are due at next_at, always with the same key.
const (
	statePending = "pending"
	stateUnknown = "unknown"
	stateDone    = "done"
	stateFailed  = "failed"
)

// DefaultLease is how long a row is left to the replica that sends it: longer than one call takes.
const DefaultLease = 90 * time.Second

const (
	maxWait = 5 * time.Minute // between attempts
	// keyLife is how long a key is used: an hour less than Stripe remembers it.
	keyLife = 23 * time.Hour
	// mismatchWait is how long a request whose key was used with other parameters is looked up before it counts as not
	// done.
	mismatchWait = time.Hour
)

// Outbox sends rows. Register the kinds of rows before the first one is sent. Outbox is safe for concurrent use after
// that.
type Outbox struct {
	d      *db.DB
	client *stripe.Client
	log    *slog.Logger
	kinds  map[string]kind
}

type kind struct {
	Kind
	sender Sender
}

// New returns an outbox without kinds.
func New(d *db.DB, client *stripe.Client, log *slog.Logger) *Outbox {
	return &Outbox{d: d, client: client, log: log, kinds: map[string]kind{}}
}

// Client returns the client with which rows are sent. Use it to read; requests that change something at Stripe are
// rows.
func (o *Outbox) Client() *stripe.Client { return o.client }

// Batch collects the rows that a transaction writes, in the order in which they are to be sent.
type Batch struct {
	Tx   *db.Tx
	Rows []id.Outbox // for SendNow, after the commit
}

// Add writes a row of a registered kind: ref is the id of the object that it is about, params its frozen parameters,
// which are stored as JSON. It does nothing if there is a row with the key.
func (b *Batch) Add(ctx context.Context, kind, ref, key string, params any) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	row := dbq.InsertOutboxParams{ID: id.New[id.Outbox](), Kind: kind, Ref: ref, Params: p, IdemKey: key}
	n, err := b.Tx.Q.InsertOutbox(ctx, row)
	if err != nil {
		return fmt.Errorf("insert outbox row %s: %w", key, err)
	}
	if n == 1 {
		b.Rows = append(b.Rows, row.ID)
	}
	return nil
}

// AddDone writes a row as it is after Stripe answered with result, for an object that the database lost and Stripe
// has. It does nothing if there is a row with the key.
func (b *Batch) AddDone(ctx context.Context, kind, ref, key string, params any, result string) error {
	p, err := json.Marshal(params)
	if err != nil {
		return err
	}
	if err := b.Tx.Q.InsertDoneOutbox(ctx, dbq.InsertDoneOutboxParams{
		ID:       id.New[id.Outbox](),
		Kind:     kind,
		Ref:      ref,
		Params:   p,
		IdemKey:  key,
		ResultID: result,
	}); err != nil {
		return fmt.Errorf("insert outbox row %s: %w", key, err)
	}
	return nil
}

// Add writes one row; see Batch.Add. It returns the row for SendNow, or none if there was one with the key. Without
// SendNow, SendDue sends the row seconds later.
func Add(ctx context.Context, tx *db.Tx, kind, ref, key string, params any) ([]id.Outbox, error) {
	b := &Batch{Tx: tx}
	err := b.Add(ctx, kind, ref, key, params)
	return b.Rows, err
}

// Sent is what became of a row.
type Sent struct {
	Kind   string
	Done   bool   // Stripe did it
	Object string // id of Stripe's object, if Done
}

// Find returns the row with a key; ok is false if there is none.
func (o *Outbox) Find(ctx context.Context, key string) (s Sent, ok bool, err error) {
	row, err := o.d.Q.OutboxByKey(ctx, key)
	if db.NoRows(err) {
		return Sent{}, false, nil
	}
	if err != nil {
		return Sent{}, false, fmt.Errorf("read outbox row %s: %w", key, err)
	}
	return Sent{Kind: row.Kind, Done: row.State == stateDone, Object: row.ResultID}, true, nil
}

// Waits reports whether a row of the given kinds about the same object as the row with this key, written before it, is
// still to be sent.
func (o *Outbox) Waits(ctx context.Context, key string, kinds ...string) (bool, error) {
	waits, err := o.d.Q.OutboxBefore(ctx, key, kinds)
	if err != nil {
		return false, fmt.Errorf("read outbox rows before %s: %w", key, err)
	}
	return waits, nil
}
