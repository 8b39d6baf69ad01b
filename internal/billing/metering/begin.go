package metering

import (
	"math/big"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// Beginning is the money side of a new cluster: its leases authorised from the start, CreateLeases and Authorise in
// one. QueueBegin locks the money, Decide says how far it reaches, QueueWrite writes the leases and moves the money.
type Beginning struct {
	request  AuthoriseRequest
	leases   []NewLease
	locked   *ledger.Locked
	limits   budget.Watch // read by the batch of QueueBegin, as is standing
	standing payment.StandingState

	out     Authorisation
	from    int64
	missing money.Nano
}

// QueueBegin queues the locks of a new cluster's money and the reads of its limits; the batch is sent in tx. Other
// accounts that the transaction moves are locked with it, in one order: see Locked.
func QueueBegin(b *pgx.Batch, tx *db.Tx, r AuthoriseRequest, others ...ledger.Account) (*Beginning, error) {
	locked, err := ledger.QueueLock(b, tx, append(r.accounts(), others...)...)
	if err != nil {
		return nil, err
	}
	out := &Beginning{request: r, locked: locked}
	budget.QueueWatch(b, r.Org, r.Project, r.Currency, &out.limits) // after the wallet's lock
	payment.QueueStanding(b, r.Org, &out.standing)
	return out, nil
}

// Locked are the locked accounts.
func (k *Beginning) Locked() *ledger.Locked { return k.locked }

// Decide says until when the leases may run and what is held for it. now is PostgreSQL's clock, read after the lock.
// The faults are Authorise's.
func (k *Beginning) Decide(leases []NewLease, notAfter *time.Time, now time.Time) (Authorisation, error) {
	in := make([]*lease, len(leases))
	for i, l := range leases {
		in[i] = &lease{meter: Meter{Numerator: new(big.Int)}, terms: Terms{
			Life: Interval{Start: 0, End: forever}, Prices: []Price{{0, l.Rate}}, SharePPM: l.HostSharePPM,
		}}
	}
	k.leases, k.request.NotAfter = leases, notAfter
	var err error
	k.out, k.from, k.missing, err = k.request.decide(in, k.locked, k.limits, k.standing, now.UnixMilli())
	return k.out, err
}

// QueueWrite queues the writes of what was decided. The hold is the cluster's first: no notice of its budget is due.
func (k *Beginning) QueueWrite(b *pgx.Batch) error {
	if k.missing > 0 {
		if err := k.limits.QueueCommit(b, k.missing); err != nil {
			return err
		}
		if err := k.locked.QueueWrite(b, k.request.entry(k.out, k.missing)); err != nil {
			return err
		}
	}
	return queueLeases(b, k.leases, &k.out.RunUntil, k.from)
}
