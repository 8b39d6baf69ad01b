package metering

import (
	"context"
	"fmt"
	"math/big"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Running is what clusters cost at this moment.
type Running struct {
	Accrued money.Nano  // used and not posted yet: will be taken from what is held
	Burn    money.Micro // per hour, of leases whose window is open
}

// OrgRunning adds up the org's leases that are not settled.
func OrgRunning(ctx context.Context, q *dbq.Queries, org id.Org) (Running, error) {
	ids, err := q.UnsettledLeaseIDsOfOrg(ctx, org)
	if err != nil {
		return Running{}, fmt.Errorf("list running leases: %w", err)
	}
	return runningOf(ctx, q, ids)
}

// AllRunning adds up the leases of all orgs that are not settled.
func AllRunning(ctx context.Context, q *dbq.Queries) (Running, error) {
	ids, err := q.UnsettledLeaseIDs(ctx)
	if err != nil {
		return Running{}, fmt.Errorf("list running leases: %w", err)
	}
	return runningOf(ctx, q, ids)
}

func runningOf(ctx context.Context, q *dbq.Queries, ids []id.Lease) (Running, error) {
	leases, err := readMeters(ctx, q, ids, true)
	if err != nil {
		return Running{}, err
	}
	at, err := q.DatabaseTime(ctx)
	if err != nil {
		return Running{}, fmt.Errorf("read the clock: %w", err)
	}
	now := at.UnixMilli()
	var r Running
	for _, l := range leases {
		r.Accrued += l.soFar(now) - l.meter.Posted
		if l.counts() {
			r.Burn += l.terms.rateAt(now)
		}
	}
	return r, nil
}

func (t Terms) rateAt(ms int64) money.Micro {
	for k := range t.Prices {
		if i := span(t.Prices, k); i.Start <= ms && ms < i.End {
			return t.Prices[k].Rate
		}
	}
	return 0
}

// OperatorUnposted returns the operator's part of what its hosts' leases have proven and is not in the ledger yet. It
// is posted in steps of up to an hour; of a frozen lease, once an admin has decided.
func OperatorUnposted(ctx context.Context, q *dbq.Queries, operator id.Org) (money.Nano, error) {
	e, err := OperatorEarning(ctx, q, operator)
	return e.Unposted, err
}

// Earning is what an operator's hosts earn at this moment: the operator's part.
type Earning struct {
	PerHour  money.Micro // of leases whose window is open
	Unposted money.Nano  // proven and not in the ledger yet
}

// OperatorEarning adds up the operator's leases that are not settled.
func OperatorEarning(ctx context.Context, q *dbq.Queries, operator id.Org) (e Earning, err error) {
	ids, err := q.UnsettledLeaseIDsOfOperator(ctx, operator)
	if err != nil {
		return e, fmt.Errorf("list unsettled leases of %s: %w", operator, err)
	}
	leases, err := readMeters(ctx, q, ids, true)
	if err != nil {
		return e, err
	}
	at, err := q.DatabaseTime(ctx)
	if err != nil {
		return e, fmt.Errorf("read the clock: %w", err)
	}
	now := at.UnixMilli()
	for _, l := range leases {
		_, p := Charge(l.meter, nil, l.windows, l.terms)
		e.Unposted += max(0, p.Host)
		if l.counts() {
			e.PerHour += money.Micro(money.Share(money.Nano(l.terms.rateAt(now)), l.terms.SharePPM))
		}
	}
	return e, nil
}

// Cost is what a cluster costs, read from its meters alone: the time it takes does not grow with how long the cluster
// has run. Usage itemises the same money.
type Cost struct {
	Currency string
	Posted   money.Nano // booked
	Estimate money.Nano // Posted, and what all time up to now costs that may still be proven
	// BillableMS is the time behind Posted, in milliseconds, of the rank that was billed longest.
	BillableMS int64
	// EstimateMS is the time behind Estimate, likewise. It differs from Usage.EstimateMS only where time of all ranks was
	// never proven, and not the same time.
	EstimateMS int64
	ByRank     map[int]money.Nano // Estimate of each rank, over all hosts it was on
	GPUMS      int64              // Σ over leases of GPUs × billed time that is proven
	EnergyMJ   int64
	Settled    bool // nothing will change any more
	Counting   bool // seconds count at this moment: a window is open in which no rank is in doubt
}

// Cost returns what a cluster costs. A cluster without leases costs nothing.
func (l *Leases) Cost(ctx context.Context, cluster id.Cluster) (Cost, error) {
	costs, err := Costs(ctx, l.d.Q, []id.Cluster{cluster})
	return costs[cluster], err
}

// Costs reads the costs of many clusters at once. Clusters without leases are missing from the answer.
func Costs(ctx context.Context, q *dbq.Queries, clusters []id.Cluster) (map[id.Cluster]Cost, error) {
	b := &pgx.Batch{}
	read := QueueCosts(b, clusters)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, fmt.Errorf("read meters of clusters: %w", err)
	}
	return read(ctx, q)
}

// QueueCosts queues the first statement of Costs. The function that it returns makes the others, after the batch was
// sent.
func QueueCosts(b *pgx.Batch,
	clusters []id.Cluster) (read func(context.Context, *dbq.Queries) (map[id.Cluster]Cost, error)) {
	in := make([]pgtype.UUID, len(clusters))
	for i, c := range clusters {
		in[i] = raw(c)
	}
	var rows []dbq.MetersOfClustersRow
	if len(in) > 0 {
		db.Read(b, &rows, (*dbq.Queries).MetersOfClusters, in)
	}
	return func(ctx context.Context, q *dbq.Queries) (map[id.Cluster]Cost, error) {
		meters := make([]dbq.MetersByIDRow, len(rows))
		for i, r := range rows {
			meters[i] = dbq.MetersByIDRow(r)
		}
		leases, err := leasesOf(ctx, q, meters, true)
		if err != nil {
			return nil, err
		}
		return costsOf(leases), nil
	}
}

// costsOf adds up the costs of leases, at the moment at which they were read.
func costsOf(leases []*lease) map[id.Cluster]Cost {
	type rank struct {
		cluster id.Cluster
		rank    int32
	}
	posted, soFar := map[rank]int64{}, map[rank]int64{} // ms: a rank's leases on several hosts never overlap
	out := map[id.Cluster]Cost{}
	for _, l := range leases {
		c, seen := out[l.ClusterID]
		if !seen {
			c = Cost{Currency: l.Currency, ByRank: map[int]money.Nano{}, Settled: true}
		}
		sum := max(l.meter.Posted, l.soFar(l.readAt))
		c.Posted += l.meter.Posted
		c.Estimate += sum
		c.ByRank[int(l.Rank)] += sum
		c.EnergyMJ += l.energy
		c.Settled = c.Settled && l.settled()
		due, _ := billable(l.windows, l.terms.Life)
		c.GPUMS += int64(l.GPUCount) * (l.meter.BilledMS + due.Intersect(l.meter.Proven).Len())
		at := rank{l.ClusterID, l.Rank}
		posted[at] += l.meter.PostedBilledMS
		soFar[at] += l.soFarMS(l.readAt)
		c.BillableMS, c.EstimateMS = max(c.BillableMS, posted[at]), max(c.EstimateMS, soFar[at])
		c.Counting = counting(l.windows)
		out[l.ClusterID] = c
	}
	return out
}

// counting reports whether a window runs and in none that does a rank is in doubt.
func counting(windows []Window) (yes bool) {
	for _, w := range windows {
		if w.running() && w.DoubtMS > 0 {
			return false
		}
		yes = yes || w.running()
	}
	return yes
}

// soFar returns what the lease costs at the moment now if all of its time that may still be proven will be.
func (l *lease) soFar(now int64) money.Nano {
	if l.settled() {
		return l.meter.Posted
	}
	return money.Posted(new(big.Int).Add(l.meter.Numerator, numerator(l.unproven(now), l.terms.Prices)))
}

// soFarMS returns the time behind soFar, in milliseconds.
func (l *lease) soFarMS(now int64) int64 {
	if l.settled() {
		return l.meter.PostedBilledMS
	}
	return l.meter.BilledMS + l.unproven(now).Len()
}

// unproven returns the time above the lease's watermark that is billed at the moment now if it is all proven yet.
func (l *lease) unproven(now int64) Set {
	if l.settled() {
		return nil
	}
	if r := l.runUntil(); r != 0 {
		now = min(now, r)
	}
	// A window that closed with the time that processes have to end reaches into the future.
	out := l.possible(now, now).Clip(Interval{End: now})
	for _, w := range l.windows { // in doubt: it is not billed unless proof of it comes
		switch {
		case w.pending():
			out = out.Minus(SetOf(w.undecided()))
		case w.running() && w.DoubtMS != 0:
			out = out.Minus(SetOf(Interval{Start: w.DoubtMS, End: forever}))
		}
	}
	return out
}
