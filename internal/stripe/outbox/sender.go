package outbox

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/stripe"
)

// Row is a request to Stripe as its sender gets it.
type Row struct {
	Kind     string
	Ref      string // prefixed id of the object that it is about
	Key      string // idempotency key
	Params   []byte // JSON, frozen when the request was decided
	Attempts int    // including this one
	// Old reports that the key can no longer be used: Stripe may have forgotten it, or knows it with other parameters.
	// The sender has to look up what the row did and must not send it again.
	Old bool
}

// Book books what Stripe answered, in the transaction that ends the row.
type Book func(ctx context.Context, tx *db.Tx) error

// Sender sends rows of a kind. Its methods may be called any number of times for a row, also by several replicas at
// once.
type Sender interface {
	// Send makes the call, outside of transactions. result is the id of Stripe's object. If the call fails, err is a
	// *stripe.Error, and its Outcome decides whether the row is sent again; any other error is one of ours, and the row
	// stays as it is until its lease ends.
	Send(ctx context.Context, client *stripe.Client, row Row) (result string, book Book, err error)
	// Refused books, in the transaction that ends the row, that Stripe did not do it and never will under this key.
	Refused(ctx context.Context, tx *db.Tx, row Row, why *stripe.Error) error
}

// Kind is a kind of rows.
type Kind struct {
	Name string
	// Lease is how long a row is left to the replica that sends it; 0: DefaultLease. It must be longer than all calls of
	// a row take together.
	Lease time.Duration
	// First has rows of this kind sent before all others, which need the objects that it creates.
	First bool
	// NoMoney marks rows that move no money: they are sent while sending is paused, too.
	NoMoney bool
}

// Register sets the sender of a kind of rows. Each process that sends rows must register all kinds, before it sends
// any.
func (o *Outbox) Register(k Kind, s Sender) {
	if k.Lease == 0 {
		k.Lease = DefaultLease
	}
	o.kinds[k.Name] = kind{k, s}
}

// lease returns how long a row of a kind is left to its sender.
func (o *Outbox) lease(name string) time.Duration {
	if k, ok := o.kinds[name]; ok {
		return k.Lease
	}
	return DefaultLease
}

// moneyless returns the kinds of rows that are sent while sending is paused.
func (o *Outbox) moneyless() []string {
	names := []string{}
	for _, k := range o.kinds {
		if k.NoMoney {
			names = append(names, k.Name)
		}
	}
	return names
}

// CodeGivenUp is the code of the error that GivenUp returns.
const CodeGivenUp = "given_up"

// GivenUp returns the error with which a sender ends an old row that had no effect and will not be sent again. The
// message is for the payer.
func GivenUp(message string) *stripe.Error {
	return &stripe.Error{Outcome: stripe.Rejected, Code: CodeGivenUp, Message: message}
}
