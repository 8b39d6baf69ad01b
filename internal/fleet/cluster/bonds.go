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
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// stakesOf are what the leases of a placement are rented with: none outside gangs.
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
func (x *change) stake(ctx context.Context, stakes bond.Stakes) error {
	if len(stakes.Leases) == 0 {
		return nil
	}
	books, err := ledger.Lock(ctx, x.tx, stakes.Accounts()...)
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
	return x.tx.Send(ctx, b)
}

// readBonds notes of which ranks of a gang that are in doubt little is left of the bond: nobody would pay the others
// for waiting any longer.
func (x *change) readBonds(ctx context.Context) (err error) {
	if len(x.nodes) < 2 || State(x.row.State).Ended() {
		return nil
	}
	for _, n := range x.nodes {
		if NodeState(n.State) != NodeLost || n.StartedAt == nil || n.ended != nil {
			continue
		}
		if n.bondLow, err = bond.Low(ctx, x.tx.Q, x.row.ID, n.LeaseID); err != nil {
			return err
		}
	}
	return nil
}

// reserved reports whether something is reserved for the cluster's leases still.
func (x *change) reserved(ctx context.Context) (bool, error) {
	if len(x.nodes) < 2 {
		return false, nil
	}
	leases, err := bond.OfCluster(ctx, x.tx.Q, x.row.ID)
	return slices.ContainsFunc(leases, func(l bond.Frozen) bool { return l.Open }), err
}

// tendBonds is the part of a look at a gang that moves bonds: reserves are filled up, standby and relief booked, and
// what is reserved released once everything is decided.
func (c *Clusters) tendBonds(ctx context.Context, cl id.Cluster) error {
	leases, err := bond.OfCluster(ctx, c.db.Q, cl) // most clusters have none: no lock is taken for them
	if err != nil || !slices.ContainsFunc(leases, func(l bond.Frozen) bool { return l.Open }) {
		return err
	}
	return c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		x, err := c.lock(ctx, tx, cl)
		if err != nil {
			return err
		}
		if leases, err = bond.OfCluster(ctx, tx.Q, cl); err != nil {
			return err
		}
		if !State(x.row.State).Ended() {
			if err := bond.Refill(ctx, tx, cl); err != nil {
				return err
			}
		}
		if err := x.payStandby(ctx, leases); err != nil {
			return err
		}
		decided, err := x.decided(ctx)
		if err != nil || !decided {
			return err
		}
		if err := bond.Release(ctx, tx, cl); err != nil {
			return err
		}
		x.row.SettledAt = &x.now // all leases are settled, and waited for this alone
		return x.save(ctx)
	})
}

// decided reports whether nothing can change any more what the cluster's leases owe each other.
func (x *change) decided(ctx context.Context) (bool, error) {
	open, err := x.tx.Q.ClusterUndecided(ctx, x.row.ID)
	if err != nil {
		return false, fmt.Errorf("what of cluster %s is decided: %w", x.row.ID, err)
	}
	return State(x.row.State).Ended() && x.reportsComplete() && !open, nil
}

// payStandby books what the decided suspensions of a gang have come to: what leases that stood by get from the bonds of
// those that failed, and from relief where no host is to blame.
func (x *change) payStandby(ctx context.Context, leases []bond.Frozen) error {
	rows, err := x.tx.Q.SuspensionsOfCluster(ctx, x.row.ID)
	if err != nil || len(rows) == 0 {
		return err
	}
	fee, err := x.tx.Q.ClusterUsageFee(ctx, x.row.ID, x.row.ID.String())
	if err != nil {
		return fmt.Errorf("the fee on cluster %s: %w", x.row.ID, err)
	}
	spans := make([]interval.Span, len(rows))
	for i, r := range rows {
		spans[i] = interval.Span{Start: r.FromMs, End: r.ToMs}
	}
	unwell, err := x.unwell(ctx, leases, spans)
	if err != nil {
		return err
	}
	ranks := make([]fairness.Rank, len(leases))
	terms := make([]fairness.Lease, len(leases))
	at := map[[16]byte]int{}
	for i, l := range leases {
		signed, told, err := metering.SignedWithin(ctx, x.tx.Q, l.Lease, spans)
		if err != nil {
			return err
		}
		ranks[i] = fairness.Rank{Lease: i, Signed: signed.Minus(unwell[l.Lease].Minus(told))}
		terms[i] = fairness.Lease{Operator: l.Operator, StandbyRate: l.StandbyRate, SharePPM: l.SharePPM, Bond: l.Reserved}
		at[l.Lease.UUID()] = i
	}
	runs := make([]fairness.Run, len(rows))
	for i, r := range rows {
		s := fairness.Suspension{Span: spans[i], Class: fairness.Class(r.Class)}
		for _, c := range r.Culprits {
			if _, ok := at[c.Bytes]; !ok { // rented before there were bonds: its turns are paid by nobody
				at[c.Bytes] = len(leases)
				leases = append(leases, bond.Frozen{Lease: id.FromUUID[id.Lease](c.Bytes)})
				ranks, terms = append(ranks, fairness.Rank{Lease: at[c.Bytes]}), append(terms, fairness.Lease{})
			}
			s.Culprits = append(s.Culprits, at[c.Bytes])
		}
		slices.Sort(s.Culprits)
		runs[i] = fairness.Run{
			Facts:   fairness.Facts{Run: spans[i]},
			Verdict: fairness.Verdict{Suspensions: []fairness.Suspension{s}},
		}
	}
	for i := range runs {
		runs[i].Ranks = ranks
	}
	due := fairness.Pay(terms, runs, money.Nano(max(0, fee)), fairness.DefaultRelief)
	return bond.Post(ctx, x.tx, x.row.ID, leases, due)
}

// unwell is for which time between the first and the last span the hosts of leases themselves reported that a rank was
// not up: a segment that says no more than that the lease was there is no proof of standing by then.
func (x *change) unwell(ctx context.Context, leases []bond.Frozen,
	spans []interval.Span) (map[id.Lease]interval.Set, error) {
	var of []pgtype.UUID
	for _, l := range leases {
		of = append(of, uuids(l.Lease)...)
	}
	all := interval.Of(spans...)
	rows, err := x.tx.Q.RankGapsWithin(ctx, of, all[len(all)-1].End, all[0].Start)
	if err != nil {
		return nil, fmt.Errorf("gaps of %s: %w", x.row.ID, err)
	}
	out := map[id.Lease]interval.Set{}
	for _, r := range rows {
		if r.Unwell {
			out[r.LeaseID] = out[r.LeaseID].Union(interval.Of(interval.Span{Start: r.FromMs, End: r.ToMs}))
		}
	}
	return out, nil
}
