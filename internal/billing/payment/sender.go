package payment

import (
	"context"
	"strings"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
)

// Row is what was written down to be said to Stripe, as its sender gets it.
type Row struct {
	Ref    string // prefixed id of the object it belongs to
	Key    string // idempotency key
	Params []byte // JSON, frozen when it was decided
	// Old says that Stripe may have forgotten the key: what the row did has to be looked up, and must not be said anew.
	Old bool
}

// Sender says rows of one kind for the noun that writes them.
type Sender struct {
	// Send makes the call. What Stripe answers is booked by the function it returns, in the transaction that ends the row;
	// result is the id of Stripe's object. A refusal is a *stripe.Error: the outbox says the row again where that is
	// right. Say may be called again for the same row at any time, at once on several replicas.
	Send func(ctx context.Context, client *stripe.Client, row Row) (result string,
		book func(context.Context, *db.Tx) error, err error)
	// Refused books that Stripe did not do it and never will under this key.
	Refused func(ctx context.Context, tx *db.Tx, row Row, why *stripe.Error) error
}

// Register gives a kind of row to a noun above this one. Call it before any row is sent; every process that sends must.
func (p *Payments) Register(kind string, s Sender) { p.senders[kind] = s }

// Watch gives the objects whose ids begin with prefix, such as "tr_", to a noun above this one: whenever an event or a
// change of Stripe's balance names one, ask is called with its id. The note says why nothing was to be done.
func (p *Payments) Watch(prefix string, ask func(ctx context.Context, object string) (note string, err error)) {
	p.watchers[prefix] = ask
}

// Queue writes down, in tx, what is to be said to Stripe; a key that was written before is left as it is. What it
// returns is for SendNow, after the commit; who does not call that leaves the row to SendDue.
func (p *Payments) Queue(ctx context.Context, tx *db.Tx, kind, ref, key string, params any) ([]id.Outbox, error) {
	out := &outgoing{tx: tx}
	err := out.add(ctx, kind, ref, key, params)
	return out.rows, err
}

// SendNow says committed rows at once; what cannot be said is left to SendDue.
func (p *Payments) SendNow(ctx context.Context, rows []id.Outbox) { p.send(ctx, rows) }

// Stripe is the client, for questions. What changes something goes through Say.
func (p *Payments) Stripe() *stripe.Client { return p.stripe }

// sendOther says a row for the noun that it belongs to.
func (p *Payments) sendOther(ctx context.Context, s Sender, o dbq.ClaimOutboxRow, old bool) (fail, err error) {
	result, book, err := s.Send(ctx, p.stripe, Row{o.Ref, o.IdemKey, o.Params, old})
	if stripe.As(err) != nil {
		return err, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := book(ctx, tx); err != nil {
			return err
		}
		return finish(ctx, tx, o, stateDone, result, "")
	})
}

// refuseOther books the refusal of a row of another noun's.
func (p *Payments) refuseOther(ctx context.Context, s Sender, o dbq.ClaimOutboxRow, why *stripe.Error) error {
	return p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.Refused(ctx, tx, Row{Ref: o.Ref, Key: o.IdemKey, Params: o.Params}, why); err != nil {
			return err
		}
		return finish(ctx, tx, o, stateFailed, "", why.Error())
	})
}

// watch asks whoever watches objects with ids like this one; watched is false when nobody does.
func (p *Payments) watch(ctx context.Context, object string) (note string, watched bool, err error) {
	for prefix, ask := range p.watchers {
		if strings.HasPrefix(object, prefix) {
			note, err := ask(ctx, object)
			return note, true, err
		}
	}
	return "", false, nil
}
