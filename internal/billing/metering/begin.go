package metering

import (
	"context"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// Beginning is the money of leases that are authorised: those of a new cluster, for which it does what CreateLeases and
// Authorise do, or those of a cluster that Authorise extends. QueueBegin locks the money, Decide decides how far it
// reaches, QueueWrite writes the leases and moves the money.
type Beginning struct {
	request  AuthoriseRequest
	leases   []*lease
	locked   *ledger.Locked
	limits   budget.Watch
	standing string       // a client.StandingState; "" = never disputed
	owed     owed.Storage // paid before anything is held

	out     Authorisation
	from    int64 // the moment, unix ms, from which the hold covers; 0 = RunUntil stays as it is
	missing money.Nano
}

// QueueBegin queues the locks of a cluster's money and the reads of its limits; the batch is sent in tx. leases are
// those to be created; only their prices and shares are read. Other accounts that the transaction moves are locked
// together with the cluster's, in one order: see Locked.
func QueueBegin(b *pgx.Batch, tx *db.Tx, r AuthoriseRequest, leases []NewLease,
	others ...ledger.Account) (*Beginning, error) {
	locked, err := ledger.QueueLock(b, tx, append(r.accounts(), others...)...)
	if err != nil {
		return nil, err
	}
	k := &Beginning{request: r, locked: locked}
	for _, l := range leases {
		k.leases = append(k.leases, &lease{meter: Meter{Numerator: new(big.Int)}, terms: Terms{
			Life: Interval{Start: 0, End: forever}, Prices: []Price{{0, l.Rate}}, SharePPM: l.HostSharePPM,
		}})
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { // budgets are read under the wallet's lock
		rows, err := q.BudgetsOf(ctx, r.Org, r.Currency, r.Project)
		k.limits = budget.NewWatch(r.Org, r.Project, r.Currency, rows)
		return err
	})
	db.Read(b, &k.standing, (*dbq.Queries).RenterStanding, r.Org)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) { // also under the wallet's lock
		k.owed, err = owed.Read(ctx, q, r.Org)
		return err
	})
	return k, nil
}

// Owed returns what the organisation owes for storage.
func (k *Beginning) Owed() owed.Storage { return k.owed }

// Locked returns the locked accounts.
func (k *Beginning) Locked() *ledger.Locked { return k.locked }

// Decide decides until when the leases may run and what is held for it. notAfter is the latest end; nil = none. now is
// PostgreSQL's clock, read after the lock. The faults are Authorise's.
func (k *Beginning) Decide(notAfter *time.Time, now time.Time) (Authorisation, error) {
	k.request.NotAfter = notAfter
	r, books, nowMS := k.request, k.locked, now.UnixMilli()
	at := r.accounts()
	held, wallet := books.Balance(at[0]), books.Spendable(at[1])
	target, limit := nowMS+fullStepMS, LimitNone
	if end := r.latest(nowMS, k.limits); end != nil && end.UnixMilli() <= target {
		target, limit = end.UnixMilli(), LimitDuration
	}
	present := authorised(k.leases)
	if present == 0 {
		if err := k.limits.Admit(rateAt(k.leases, nowMS)); err != nil {
			return Authorisation{}, err
		}
		switch client.StandingState(k.standing) {
		case client.StandingSuspended:
			return Authorisation{}, fault.New(fault.Forbidden, "your organisation is suspended because of lost disputes: "+
				"nothing "+
				"new can be rented")
		case client.StandingDisputed: // no credit: only what is prepaid and not disputed
			wallet = min(wallet, max(0, books.Balance(at[1])-books.Reserved(at[1])))
		}
	}
	wallet = k.owed.Of(wallet)
	have := spendable{funds: held + wallet, held: held, budget: r.Budget, left: k.limits.Left()}
	reach, short := affordable(k.leases, nowMS, target, have)
	if short != LimitNone {
		limit = short
	}
	until := step(nowMS, present, reach, target)
	if present == 0 {
		until = max(until, promised(k.leases))
	}
	k.out = Authorisation{
		RunUntil: time.UnixMilli(present).UTC(),
		Reach:    time.UnixMilli(reach).UTC(),
		Held:     held,
		Limit:    limit,
		spent:    short == LimitOrg && reach <= present,
	}
	if until <= present {
		return k.out, nil
	}
	if present == 0 && (until < min(nowMS+minStartMS, target) || until > max(reach, nowMS)) {
		return Authorisation{}, tooPoor(k.leases, nowMS, short, wallet, k.limits, k.owed.Amount)
	}
	k.from, k.missing = nowMS, max(0, need(k.leases, nowMS, until)-held)
	k.out.Held += k.missing
	k.out.RunUntil = time.UnixMilli(until).UTC()
	return k.out, nil
}

// QueueWrite queues the creation of the leases, which are those of QueueBegin but for their GPUs, and the move of the
// money. The hold is the cluster's first: no notice of its budget is due.
func (k *Beginning) QueueWrite(b *pgx.Batch, leases []NewLease) error {
	if k.missing > 0 {
		if err := k.limits.QueueCommit(b, k.missing); err != nil {
			return err
		}
		if err := k.locked.QueueWrite(b, k.request.entry(k.out, k.missing)); err != nil {
			return err
		}
	}
	return queueLeases(b, leases, &k.out.RunUntil, k.from)
}
