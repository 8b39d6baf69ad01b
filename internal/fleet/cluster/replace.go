package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// on_node_failure: replace, in two steps that are a transaction each, so that a server may die between any two
// statements and the next look of any replica's watchdog goes on:
//
//  1. giveUp: the rank is lost for good. Its lease ends, which fences it: its host learns that when it comes back, and
//     what it reports changes nothing. What the rank cost is credited. The cluster is degraded and says until when it
//     waits.
//  2. replace: hosts for all waiting ranks are claimed at once, as a rent would, with leases of their own, and every
//     rank starts again in a new epoch: same ranks, names and addresses. Where nothing fits, the reason is shown, and
//     it is tried again until the time is over.

// replaceLook is the interval at which a host is looked for.
const replaceLook = 5 * time.Second

// giveUp ends the leases of ranks that are lost for good; the ranks then wait for other hosts.
func (lf *life) giveUp(d lifecycle.Decision) {
	lf.startEnds(lf.now, d.Reason)
	for _, r := range d.Ranks {
		n := lf.members.nodes[r]
		n.ended = &lf.now
		lf.out.raise[n.HostID] = true
		lease := n.LeaseID
		lf.out.addWrite(func(ctx context.Context, w *writer) error { return metering.EndLease(ctx, w.tx, lease, lf.now) })
	}
	lf.billing.stopWindow(lf.now)
	if lf.row.GoAt != nil {
		// what the others would compute now is lost, and no one pays for it: they stop, and wait at the barrier
		lf.startAgain()
	}
	lf.raiseLive() // to the others they are ranks that have not joined yet
	until := lf.now.Add(lf.cfg.ReplaceWait)
	lf.row.ReplaceUntil, lf.row.ReplaceNote, lf.row.StartDeadline, lf.row.StartFrom = &until, "", nil, nil
	lf.row.Reason, lf.row.Detail = string(d.Reason), lf.placement.seeking(join(d.Reason.Happened(), d.Detail))
	lf.news.notifyRenter("replacing", d.Ranks, notify.Notice{
		Severity: notify.Warn, Title: fmt.Sprintf("%s lost %s: another host is looked for", lf.row.Name, rankList(d.Ranks)),
		Body: lifecycle.Sentences(d.Reason.Happened(), d.Reason.Charged(), sought(until)),
	})
}

// placement says which ranks of a locked cluster need another host.
type placement struct {
	now     time.Time
	row     *dbq.Cluster
	members *members
}

// seeking returns the detail of a cluster whose ranks wait for other hosts.
func (pl *placement) seeking(what string) string {
	s := what + " " + sought(*pl.row.ReplaceUntil)
	if pl.row.ReplaceNote != "" {
		s += " So far: " + pl.row.ReplaceNote + "."
	}
	return s
}

func sought(until time.Time) string {
	return "Another host is looked for until " + until.UTC().Format("15:04:05") +
		" UTC; nothing is billed until every rank has started again."
}

// waiting returns the ranks that wait for another host.
func (pl *placement) waiting() []int {
	var out []int
	if lifecycle.State(pl.row.State) != lifecycle.Degraded || pl.row.ReplaceUntil == nil {
		return nil
	}
	for _, n := range pl.members.nodes {
		if n.required && n.ended != nil {
			out = append(out, int(n.Rank))
		}
	}
	return out
}

// dueReplacing calls sooner with the time at which a host must be looked for next.
func (pl *placement) dueReplacing(sooner func(time.Time)) {
	switch {
	case len(pl.waiting()) == 0:
	case pl.row.ReplaceNote == "":
		sooner(pl.now.Add(time.Millisecond)) // not looked for yet
	default:
		sooner(pl.now.Add(replaceLook))
		sooner(pl.row.ReplaceUntil.Add(time.Millisecond))
	}
}

// replace finds hosts for the ranks that wait, or records why there are none. If it is called again, or by several
// replicas at once, it does nothing more.
func (wd *Watchdog) replace(ctx context.Context, cl id.Cluster) error {
	g, err := wd.gangOf(ctx, cl)
	if err != nil || len(g.ranks) == 0 {
		return err
	}
	err = wd.market.Planning(ctx, g.request, func(ctx context.Context, plan market.Placement, refused error) error {
		if refused != nil {
			return refused
		}
		return wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			x, err := wd.machine.lock(ctx, tx, cl)
			if err != nil {
				return err
			}
			if !slices.Equal(x.placement.waiting(), g.ranks) {
				return errOvertaken
			}
			return wd.machine.writer(tx, x).replace(ctx, plan, g)
		})
	})
	if errors.Is(err, errOvertaken) { // the watchdog's next look sees the new state
		return nil
	}
	if why := whyNot(err); why != "" {
		return wd.stillWaiting(ctx, cl, why)
	}
	if err != nil {
		return fmt.Errorf("replace ranks of %s: %w", cl, err)
	}
	return nil
}

// errOvertaken means that the ranks that wait have changed since they were read.
var errOvertaken = errors.New("other ranks wait for hosts now")

// gang is what is to be placed for a cluster's waiting ranks.
type gang struct {
	ranks   []int
	request market.Request
	rates   map[id.Lease]money.Micro // of all leases it has and had, per hour
}

// gangOf reads what the waiting ranks need: GPUs like those they had, for the price that was agreed on, in the fabric
// or on the host where the other ranks need them, on no host that the cluster has or lost, and never on the renter's
// own.
func (wd *Watchdog) gangOf(ctx context.Context, cl id.Cluster) (g gang, err error) {
	var x *lockedCluster
	var leases []dbq.ClusterRatesRow
	err = wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if x, err = wd.machine.lock(ctx, tx, cl); err != nil {
			return err
		}
		leases, err = tx.Q.ClusterRates(ctx, cl)
		return err
	})
	if err != nil {
		return g, fmt.Errorf("what %s lost: %w", cl, err)
	}
	if g.ranks = x.placement.waiting(); len(g.ranks) == 0 {
		return g, nil
	}
	if g.request, err = x.spec.Request(x.row.OrgID); err != nil {
		return g, err
	}
	a := &g.request
	if _, err := a.ReadVolumes(ctx, wd.db.Q, x.spec); err != nil {
		return g, err
	}
	a.Nodes, a.Joins, a.Image = len(g.ranks), len(x.members.nodes) > 1, ""
	if end := x.members.maxUntil(); end != nil {
		a.Duration = max(1, int64(end.Sub(x.now).Seconds()))
	}
	agreed, others := g.addLeases(x, leases)
	if !a.On.IsZero() { // the others share a host, and a rank whose GPU failed needs another one of that host
		a.Exclude = slices.DeleteFunc(a.Exclude, func(h id.Host) bool { return h == a.On })
	}
	a.MaxRate = max(1, max(agreed, a.MaxRate)-others)
	return g, nil
}

// addLeases adds to the request what follows from the leases that the cluster has and had: the hosts it must not be
// placed on, the models of the lost ranks, and where and with whom the other ranks run. It returns the hourly rates of
// all ranks as they were rented, and of the ranks that continue.
func (g *gang) addLeases(x *lockedCluster, leases []dbq.ClusterRatesRow) (agreed, others money.Micro) {
	a := &g.request
	g.rates = map[id.Lease]money.Micro{}
	first := map[int32]bool{}
	for _, l := range leases {
		g.rates[l.ID] = l.Rate
		if !first[l.Rank] { // what was rented
			first[l.Rank] = true
			agreed += l.Rate
		}
		lostIt := slices.Contains(g.ranks, int(l.Rank))
		switch n := x.members.nodes[l.Rank]; {
		case n.LeaseID != l.ID:
			a.Exclude = append(a.Exclude, l.HostID)
		case lostIt:
			a.Exclude = append(a.Exclude, l.HostID)
			if !slices.Contains(a.Models, l.GPUModel) {
				a.Models = append(a.Models, l.GPUModel)
			}
		default:
			others += l.Rate
			switch a.Scope {
			case market.ScopeHost:
				a.On = l.HostID
			case market.ScopeFabric:
				a.Within = l.FabricID
			}
			a.Exclude = append(a.Exclude, l.HostID)
			a.Gang = append(a.Gang, market.Member{
				Operator:    l.HostOrgID,
				Model:       l.GPUModel,
				GPUs:        int(l.GPUCount),
				Rate:        l.Rate,
				StandbyRate: money.Micro(l.StandbyRate),
			})
		}
	}
	return agreed, others
}

// replace gives the waiting ranks to the hosts of a plan and starts every rank again.
func (w *writer) replace(ctx context.Context, want market.Placement, g gang) error {
	want.Nodes = slices.Clone(want.Nodes)
	leases, hosts := map[int]id.Lease{}, []id.Host{}
	for i, rank := range g.ranks {
		want.Nodes[i].Rank, leases[rank] = rank, id.New[id.Lease]()
		hosts = append(hosts, want.Nodes[i].Host)
	}
	for _, n := range w.x.members.nodes {
		hosts = append(hosts, n.HostID)
	}
	slices.SortFunc(hosts, id.Host.Compare)
	if err := host.LockOnly(ctx, w.tx, slices.Compact(hosts)); err != nil {
		return fmt.Errorf("lock hosts: %w", err)
	}
	placed, err := w.m.market.Claim(ctx, w.tx, want, w.x.row.ID, func(rank int) id.Lease { return leases[rank] })
	if err != nil {
		return err
	}
	w.x.life.moveRanks(placed, leases, g)
	return w.commit(ctx)
}

// moveRanks moves the waiting ranks to their new hosts, with new leases, and starts every rank again.
func (lf *life) moveRanks(placed market.Placement, leases map[int]id.Lease, g gang) {
	epoch := int(lf.row.Epoch)
	if lf.placement.othersMustStartAgain(g.ranks) {
		epoch++
	}
	var moves []string
	for _, p := range placed.Nodes {
		n := lf.members.nodes[p.Rank]
		lf.row.Rate += p.Rate - g.rates[n.LeaseID]
		n.LeaseID, n.HostID, n.ended, n.gone, n.moved, n.ReclaimTold, n.OwnerUseTold, n.CapTold = leases[p.Rank], p.Host, nil,
			nil, true, nil, false, nil
		n.LeavingTold, n.UploadsLostTold = false, false
		lf.step(n, lifecycle.NodeReplaced, lifecycle.ReasonNone, p.HostName)
		n.Detail = ""
		lease := newLease(lf.row.ID, n.ID, n.LeaseID, lf.row.OrgID, lf.row.Currency, epoch, p)
		lf.out.addWrite(func(ctx context.Context, w *writer) error {
			return metering.CreateLeases(ctx, w.tx, []metering.NewLease{lease})
		})
		moves = append(moves, fmt.Sprintf("rank %d goes on on %s, at %s per hour", p.Rank, p.HostName, p.Rate))
	}
	stakes := stakesOf(lf.row.ID, lf.row.Currency, placed, func(rank int) id.Lease { return leases[rank] })
	// Before the money: wallets are locked last.
	lf.out.addWrite(func(ctx context.Context, w *writer) error { return w.stake(ctx, stakes) })
	t, _ := lifecycle.On(lifecycle.Degraded, lifecycle.OnReplaced)
	lf.transition(lifecycle.Decision{Transition: t, Detail: strings.Join(moves, ", "), Ranks: g.ranks})
}

// othersMustStartAgain reports whether the other ranks must start again with those that get another host. Usually they
// were started again when the ranks were lost, and wait for them to join; but not if a rank was lost during that start,
// because other ranks may have measured their network with it.
func (pl *placement) othersMustStartAgain(ranks []int) bool {
	for _, n := range pl.members.nodes {
		if slices.Contains(ranks, int(n.Rank)) {
			if n.Epoch == pl.row.Epoch {
				return true
			}
		} else if n.ended == nil && (lifecycle.NodeState(n.State) == lifecycle.NodeReady || len(n.Preflight) > len("{}")) {
			return true
		}
	}
	return false
}

// join adds ranks on other hosts to the start for which the other ranks wait.
func (lf *life) join(ranks []int) {
	lf.deadline(lf.cfg.StartTimeout)
	lf.row.StartFrom = &lf.now
	for _, r := range ranks {
		lf.members.nodes[r].restart(lf.row.Epoch)
	}
	lf.row.Reason, lf.row.Detail = "", ""
	lf.raiseLive()
}

// replaced starts every rank again, together with those on other hosts.
func (lf *life) replaced(d lifecycle.Decision) {
	if lf.placement.othersMustStartAgain(d.Ranks) {
		lf.startAgain()
	} else {
		lf.join(d.Ranks)
	}
	lf.row.ReplaceUntil, lf.row.ReplaceNote = nil, ""
	lf.out.addWrite(authorise)
	lf.news.notifyRenter("replaced", d.Ranks, notify.Notice{
		Severity: notify.Info,
		Title:    fmt.Sprintf("%s starts again: another host took %s", lf.row.Name, rankList(d.Ranks)),
		Body: "The command starts again on every rank, with the same ranks, names and addresses; billing goes on once " +
			"every rank has started: " + d.Detail + ".",
	})
}

// unreplaced notifies the renter that no host was found in time.
func (lf *life) unreplaced(d lifecycle.Decision) {
	if ranks := lf.members.ended(); lf.row.ReplaceUntil != nil && len(ranks) > 0 {
		lf.news.notifyRenter("unreplaced", ranks, notify.Notice{
			Severity: notify.Bad,
			Title:    fmt.Sprintf("%s has ended: no other host was found for %s", lf.row.Name, rankList(ranks)),
			Body:     join(d.Reason.Explain(true), d.Detail),
		})
	}
}

// stillWaiting shows the renter why no host was found.
func (wd *Watchdog) stillWaiting(ctx context.Context, cl id.Cluster, why string) error {
	return wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return wd.machine.alter(ctx, tx, cl, func(x *lockedCluster) error {
			if len(x.placement.waiting()) == 0 || x.row.ReplaceNote == why {
				return nil
			}
			before := x.placement.seeking("")
			what := strings.TrimSuffix(x.row.Detail, before)
			x.row.ReplaceNote = why
			x.row.Detail = x.placement.seeking(what)
			x.news.addEvent(string(lifecycle.OnReplaceWaiting), "No host can take "+rankList(x.placement.waiting())+" yet", why)
			return nil
		})
	})
}

// whyNot returns the reason, for people, for which no host could be taken; "" if err is not a temporary one.
func whyNot(err error) string {
	var f *fault.Fault
	if !errors.As(err, &f) {
		return ""
	}
	switch f.Kind {
	case fault.NoCapacity:
		return noHost(f)
	case fault.Conflict, fault.InsufficientFunds, fault.QuotaExceeded, fault.Invalid:
		return strings.TrimSuffix(f.Message, ".")
	}
	return ""
}

// noHost returns how many hosts each constraint excluded.
func noHost(f *fault.Fault) string {
	var parts []string
	excluded, _ := f.Extra["explain"].([]client.Exclusion)
	for _, e := range excluded {
		if e.Excluded > 0 {
			parts = append(parts, fmt.Sprintf("%d by %q", e.Excluded, e.Constraint))
		}
	}
	if len(parts) == 0 {
		return strings.TrimSuffix(f.Message, ".")
	}
	return "no host fits; excluded are " + strings.Join(parts, ", ")
}

// rankList returns a list of ranks as text: "rank 1", "ranks 1 and 3".
func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var s []string
	for _, r := range ranks {
		s = append(s, fmt.Sprint(r))
	}
	return "ranks " + strings.Join(s[:len(s)-1], ", ") + " and " + s[len(s)-1]
}
