package cluster

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
)

// A rank is in doubt while it is not proven up. The billing window stays open meanwhile, but nothing more of it is
// confirmed, because proof may still arrive. judge.go decides what becomes of the time.

// doubts are what counts against the hosts of a locked cluster: suspensions, strikes and bans.
type doubts struct {
	now     time.Time
	row     *dbq.Cluster
	out     *effects
	members *members
	news    *news

	disputed []dbq.OpenUndecidedRow // undecided suspensions that go on
}

// countDoubt counts a doubt against the host of a gang's rank. Doubts count per host and not per cluster, so that
// single failures of many hosts do not end a large cluster; see fairness.DoubtIsFinal.
func (ds *doubts) countDoubt(n *node) {
	if len(ds.members.nodes) < 2 {
		return
	}
	n.doubts = append(n.doubts, ds.now.UnixMilli())
	ds.strike(n, nil, strikeDoubt)
}

// Kinds of strikes.
const (
	strikeDoubt     = "doubt"
	strikeStart     = "start"
	strikeLoss      = "loss"
	strikeUndecided = "undecided"
)

// strike records a strike against the host of a node. other is the opposite end of an undecided suspension, nil
// otherwise.
func (ds *doubts) strike(n, other *node, kind string) {
	s := dbq.InsertStrikeParams{HostID: n.HostID, ClusterID: ds.row.ID, Kind: kind, At: ds.now}
	if other != nil {
		s.AgainstOrg = id.UUIDs(other.operator)[0]
	}
	ds.out.strikes = append(ds.out.strikes, s)
	ds.news.notifyStrike(n, other, kind)
}

// pair is two ranks, a < b.
type pair struct{ a, b int32 }

// claimSince returns since when the node's host has claimed without interruption to receive nothing from a rank; zero:
// it does not.
func (n *node) claimSince(rank int32) time.Time {
	i := slices.Index(n.status.PeersDown, rank)
	switch {
	case i >= 0 && len(n.status.PeersFromMs) == len(n.status.PeersDown):
		return time.UnixMilli(n.status.PeersFromMs[i])
	case i >= 0 && n.status.PeersSinceMs != nil: // written by a server of before
		return time.UnixMilli(*n.status.PeersSinceMs)
	}
	return time.Time{}
}

// dispute updates the record of the cluster's undecided suspensions from the claims of ranks. A suspension begins now
// and never in the past, so that a claim cannot cost any host what it has earned.
func (ds *doubts) dispute() {
	var now []pair
	if s := lifecycle.State(ds.row.State); s == lifecycle.Running || s == lifecycle.Degraded {
		now = ds.members.disputes()
	}
	var open []dbq.OpenUndecidedRow
	for _, u := range ds.disputed {
		if u.Epoch == ds.row.Epoch && slices.Contains(now, pair{u.Low, u.High}) {
			open = append(open, u)
			continue
		}
		ds.out.undecided = append(ds.out.undecided, undecided{u, ds.now.UnixMilli()})
	}
	for _, p := range now {
		if !slices.ContainsFunc(open, func(u dbq.OpenUndecidedRow) bool { return p == pair{u.Low, u.High} }) {
			u := dbq.OpenUndecidedRow{Epoch: ds.row.Epoch, Low: p.a, High: p.b, FromMs: ds.now.UnixMilli()}
			open = append(open, u)
			ds.out.undecided = append(ds.out.undecided, undecided{u, 0})
		}
	}
	ds.disputed = open
}

// undecided is a suspension to be written: it begins, or ends at endMS.
type undecided struct {
	dbq.OpenUndecidedRow
	endMS int64 // 0: it begins
}

// disputeFacts returns what Next needs to know of undecided suspensions.
func (ds *doubts) disputeFacts() (d lifecycle.Dispute) {
	for _, u := range ds.disputed {
		since := time.UnixMilli(u.FromMs)
		if d.Since.IsZero() || since.Before(d.Since) {
			d.Since = since
		}
		d.Pairs = append(d.Pairs, [2]int{int(u.Low), int(u.High)})
	}
	d.Grace = ds.members.undGrace()
	return d
}

// ban is a row of pair_ban.
type ban struct {
	A, B  pgtype.UUID
	Until time.Time
}

// lateStarts records the time for which ranks that had started waited for ranks that started too late, or have not
// started: it is billed to no renter, and the late ranks' hosts are to blame for it.
func (ds *doubts) lateStarts() {
	if len(ds.members.nodes) < 2 || ds.row.GoAt == nil {
		return
	}
	var ranks []*node
	var started []int64
	for _, n := range ds.members.nodes {
		if !n.required || n.ended != nil {
			continue
		}
		ranks = append(ranks, n)
		if n.StartedAt == nil {
			started = append(started, 0)
		} else {
			started = append(started, n.StartedAt.UnixMilli())
		}
	}
	b, ok := fairness.Begin(started)
	if !ok || len(b.Late) == 0 || slices.ContainsFunc(ranks, ds.members.deafNow) {
		return
	}
	cuts := []int64{b.FromMS, ds.now.UnixMilli()}
	if !slices.Contains(started, 0) {
		cuts[1] = slices.Max(started)
	}
	for _, k := range b.Late {
		ds.strike(ranks[k], nil, strikeStart)
		if started[k] > 0 {
			cuts = append(cuts, started[k])
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := range len(cuts) - 1 {
		var culprits []id.Lease
		for _, k := range b.Late {
			if started[k] == 0 || started[k] > cuts[i] {
				culprits = append(culprits, ranks[k].LeaseID)
			}
		}
		if len(culprits) > 0 {
			ds.out.suspended = append(ds.out.suspended, dbq.InsertSuspensionParams{
				ClusterID: ds.row.ID, FromMs: cuts[i], ToMs: cuts[i+1], Class: string(fairness.Proof),
				Culprits: id.UUIDs(culprits...),
			})
		}
	}
}
