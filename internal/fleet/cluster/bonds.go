package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// stakesOf returns the stakes that the leases of a placement are rented with: none outside gangs.
func stakesOf(cl id.Cluster, currency string, p market.Placement, lease func(rank int) id.Lease) bond.Stakes {
	out := bond.Stakes{Currency: currency}
	for _, n := range p.Nodes {
		if n.StandbyRate == 0 {
			continue
		}
		out.Leases = append(out.Leases, bond.Stake{
			Lease: lease(n.Rank), Cluster: cl, Host: n.Host, Operator: n.HostOrg, StandbyRate: n.StandbyRate, Amount: n.Bond,
		})
	}
	return out
}

// stake reserves the bonds of leases that join a cluster.
func (w *writer) stake(ctx context.Context, stakes bond.Stakes) error {
	if len(stakes.Leases) == 0 {
		return nil
	}
	books, err := ledger.Lock(ctx, w.tx, stakes.Accounts()...)
	if err != nil {
		return err
	}
	if !stakes.Covered(books) {
		return fmt.Errorf("a bond is reserved for another gang: %w", market.ErrStale)
	}
	b := &pgx.Batch{}
	if err := stakes.QueueWrite(b, books); err != nil {
		return err
	}
	return w.tx.Send(ctx, b)
}

// readBonds notes the ranks of a gang that are in doubt and have little left of their bond: nothing would pay the other
// ranks for waiting any longer.
func readBonds(ctx context.Context, q *dbq.Queries, x *lockedCluster) (err error) {
	if len(x.members.nodes) < 2 || lifecycle.State(x.row.State).Ended() {
		return nil
	}
	for _, n := range x.members.nodes {
		if lifecycle.NodeState(n.State) != lifecycle.NodeLost || n.StartedAt == nil || n.ended != nil {
			continue
		}
		if n.bondLow, err = bond.Low(ctx, q, x.row.ID, n.LeaseID); err != nil {
			return err
		}
	}
	return nil
}

// hasReserved reports whether anything is still reserved for the cluster's leases.
func hasReserved(ctx context.Context, q *dbq.Queries, x *lockedCluster) (bool, error) {
	if len(x.members.nodes) < 2 {
		return false, nil
	}
	leases, err := bond.OfCluster(ctx, q, x.row.ID)
	return slices.ContainsFunc(leases, func(l bond.Frozen) bool { return l.Open }), err
}

// tendBonds moves the bonds of a gang when the watchdog looks at it: it fills up reserves, books standby and relief,
// and releases what is reserved once everything is decided.
func (wd *Watchdog) tendBonds(ctx context.Context, cl id.Cluster) error {
	leases, err := bond.OfCluster(ctx, wd.db.Q, cl) // most clusters have none: no lock is taken for them
	if err != nil || !slices.ContainsFunc(leases, func(l bond.Frozen) bool { return l.Open }) {
		return err
	}
	return wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		x, err := wd.machine.lock(ctx, tx, cl)
		if err != nil {
			return err
		}
		if err := ledger.LockCorrections(ctx, tx, cl.String()); err != nil { // relief comes from what they leave of the fee
			return err
		}
		if leases, err = bond.OfCluster(ctx, tx.Q, cl); err != nil {
			return err
		}
		if !lifecycle.State(x.row.State).Ended() {
			if err := bond.Refill(ctx, tx, cl); err != nil {
				return err
			}
		}
		standby, err := readStandby(ctx, tx.Q, cl, leases)
		if err != nil {
			return err
		}
		if err := standby.post(ctx, tx, cl); err != nil {
			return err
		}
		open, err := tx.Q.ClusterUndecided(ctx, cl)
		if err != nil {
			return fmt.Errorf("what of cluster %s is decided: %w", cl, err)
		}
		if open || !lifecycle.State(x.row.State).Ended() || !x.billing.reportsComplete() {
			return nil // what its leases owe each other can still change
		}
		if err := bond.Release(ctx, tx, cl); err != nil {
			return err
		}
		x.row.SettledAt = &x.now // all leases are settled, and waited for this alone
		return wd.machine.writer(tx, x).save(ctx)
	})
}

// standby is the facts of a gang's decided suspensions.
type standby struct {
	leases      []bond.Frozen
	suspensions []dbq.SuspensionsOfClusterRow
	spans       []interval.Span           // of the suspensions
	signed      map[id.Lease]interval.Set // time that a host has signed and not reported as unwell
	fee         money.Nano                // of the platform on the cluster's usage
}

// readStandby reads what the leases of a gang did in its decided suspensions.
func readStandby(ctx context.Context, q *dbq.Queries, cl id.Cluster, leases []bond.Frozen) (s standby, err error) {
	s = standby{leases: leases, signed: map[id.Lease]interval.Set{}}
	if s.suspensions, err = q.SuspensionsOfCluster(ctx, cl); err != nil || len(s.suspensions) == 0 {
		return s, err
	}
	fee, err := q.ClusterUsageFee(ctx, cl, cl.String())
	if err != nil {
		return s, fmt.Errorf("the fee on cluster %s: %w", cl, err)
	}
	s.fee = money.Nano(max(0, fee))
	s.spans = make([]interval.Span, len(s.suspensions))
	for i, r := range s.suspensions {
		s.spans[i] = interval.Span{Start: r.FromMs, End: r.ToMs}
	}
	unwell, err := readUnwell(ctx, q, cl, leases, s.spans)
	if err != nil {
		return s, err
	}
	for _, l := range leases {
		signed, told, err := metering.SignedWithin(ctx, q, l.Lease, s.spans)
		if err != nil {
			return s, err
		}
		s.signed[l.Lease] = signed.Minus(unwell[l.Lease].Minus(told))
	}
	return s, nil
}

// due returns what the suspensions come to: what leases that stood by get from the bonds of those that failed, and from
// relief if no host is to blame; and the leases that its positions stand for.
func (s standby) due() (fairness.Money, []bond.Frozen) {
	leases := s.leases
	ranks := make([]fairness.Rank, len(leases))
	terms := make([]fairness.Lease, len(leases))
	at := map[[16]byte]int{}
	for i, l := range leases {
		ranks[i] = fairness.Rank{Lease: i, Signed: s.signed[l.Lease]}
		terms[i] = fairness.Lease{Operator: l.Operator, StandbyRate: l.StandbyRate, SharePPM: l.SharePPM, Bond: l.Reserved}
		at[l.Lease.UUID()] = i
	}
	runs := make([]fairness.Run, len(s.suspensions))
	for i, r := range s.suspensions {
		suspension := fairness.Suspension{Span: s.spans[i], Class: fairness.Class(r.Class)}
		for _, c := range r.Culprits {
			if _, ok := at[c.Bytes]; !ok { // rented before bonds existed: its standby is not paid
				at[c.Bytes] = len(leases)
				leases = append(leases, bond.Frozen{Lease: id.FromUUID[id.Lease](c.Bytes)})
				ranks, terms = append(ranks, fairness.Rank{Lease: at[c.Bytes]}), append(terms, fairness.Lease{})
			}
			suspension.Culprits = append(suspension.Culprits, at[c.Bytes])
		}
		slices.Sort(suspension.Culprits)
		runs[i] = fairness.Run{
			Facts:   fairness.Facts{Run: s.spans[i]},
			Verdict: fairness.Verdict{Suspensions: []fairness.Suspension{suspension}},
		}
	}
	for i := range runs {
		runs[i].Ranks = ranks
	}
	return fairness.Pay(terms, runs, s.fee, fairness.DefaultRelief), leases
}

// post books what is due.
func (s standby) post(ctx context.Context, tx *db.Tx, cl id.Cluster) error {
	if len(s.suspensions) == 0 {
		return nil
	}
	due, leases := s.due()
	return bond.Post(ctx, tx, cl, leases, due)
}

// readUnwell reads for which time between the first and the last span the hosts of leases reported that a rank was not
// up. In that time a segment that only shows that the lease existed is no proof of standing by.
func readUnwell(ctx context.Context, q *dbq.Queries, cl id.Cluster, leases []bond.Frozen,
	spans []interval.Span) (map[id.Lease]interval.Set, error) {
	var of []pgtype.UUID
	for _, l := range leases {
		of = append(of, id.UUIDs(l.Lease)...)
	}
	all := interval.Of(spans...)
	rows, err := q.RankGapsWithin(ctx, of, all[len(all)-1].End, all[0].Start)
	if err != nil {
		return nil, fmt.Errorf("gaps of %s: %w", cl, err)
	}
	out := map[id.Lease]interval.Set{}
	for _, r := range rows {
		if r.Unwell {
			out[r.LeaseID] = out[r.LeaseID].Union(interval.Of(interval.Span{Start: r.FromMs, End: r.ToMs}))
		}
	}
	return out, nil
}
