package metering

import (
	"context"
	"math/big"
	"time"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// Beginning is the money side of a new cluster: its leases authorised from the start, CreateLeases and Authorise in
// one. QueueBegin locks the money, Decide says how far it reaches, Write writes leases and books.
type Beginning struct {
	request  AuthoriseRequest
	leases   []NewLease
	locked   *ledger.Locked
	limits   budget.Watch
	standing payment.StandingState

	out     Authorisation
	from    int64
	missing money.Nano
}

// QueueBegin locks the money of a new cluster as part of a pipe; tx is the pipe's transaction. Its result reads the
// answer, after Send. Other accounts that the transaction moves are locked with it, in one order: see Books.
func QueueBegin(ctx context.Context, p *db.Pipe, tx *db.Tx, r AuthoriseRequest,
	others ...ledger.Account) (read func() (*Beginning, error), err error) {
	books, err := ledger.QueueLock(ctx, p, tx, append(r.accounts(), others...)...)
	if err != nil {
		return nil, err
	}
	limits := budget.QueueWatch(ctx, p, r.Org, r.Project, r.Currency) // after the wallet's lock
	standing := payment.QueueStanding(ctx, p, r.Org)
	return func() (*Beginning, error) {
		l, err := books()
		return &Beginning{request: r, locked: l, limits: limits(), standing: standing()}, err
	}, nil
}

// Locked are the locked accounts.
func (b *Beginning) Locked() *ledger.Locked { return b.locked }

// Decide says until when the leases may run and what is held for it. now is PostgreSQL's clock, read after the lock.
// The faults are Authorise's.
func (b *Beginning) Decide(leases []NewLease, notAfter *time.Time, now time.Time) (Authorisation, error) {
	in := make([]*lease, len(leases))
	for i, l := range leases {
		in[i] = &lease{meter: Meter{Numerator: new(big.Int)}, terms: Terms{
			Life: Interval{Start: 0, End: forever}, Prices: []Price{{0, l.Rate}}, SharePPM: l.HostSharePPM,
		}}
	}
	b.leases, b.request.NotAfter = leases, notAfter
	var err error
	b.out, b.from, b.missing, err = b.request.decide(in, b.locked, b.limits, b.standing, now.UnixMilli())
	return b.out, err
}

// Write writes what was decided. It only writes, so it may be part of a pipe.
func (b *Beginning) Write(ctx context.Context, tx *db.Tx) error {
	if err := b.request.count(ctx, tx, nil, b.limits, b.out, b.missing); err != nil {
		return err
	}
	if b.missing > 0 {
		if err := b.locked.Write(ctx, tx, b.request.entry(b.out, b.missing)); err != nil {
			return err
		}
	}
	return writeLeases(ctx, tx, b.leases, &b.out.RunUntil, b.from)
}
