package cluster

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
)

// reportFact is one thing that a host may report of a lease and that is decided under the cluster's lock.
type reportFact struct {
	name string
	// changed reports whether the report says something new. It is called twice: without the lock, to find out whether
	// the report needs the lock at all (most do not), and under the lock, before apply.
	changed func(k knownNode, r leaseReport) bool
	// apply puts the fact into a change. It is nil for facts that saveStatuses stores with the node's status: under the
	// lock, assess decides what follows from them.
	apply func(rp *reports, n *node, r leaseReport)
}

// knownNode is what the server knows of a node and its cluster. A report is compared with it.
type knownNode struct {
	dbq.Node
	nodes       int // of the cluster
	goAt        *time.Time
	imageDigest string
	cappedUntil *time.Time // the data cap of the node's host is used up until then
}

// reportFacts are in the order in which they are applied: a node that starts again loses its address before the new one
// is stored, and a start is stored before an exit.
var reportFacts = []reportFact{
	{"node starts again", startsAgain, (*reports).applyStartAgain},
	{"address", addressChanged, (*reports).applyAddress},
	{"preflight", preflightChanged, (*reports).applyPreflight},
	{"owner's programs use the GPU", func(k knownNode, r leaseReport) bool {
		return r.now.OwnerMB > 0 && !k.OwnerUseTold
	}, (*reports).applyOwnerUse},
	{"its cloud announces an interruption", func(k knownNode, r leaseReport) bool {
		return r.now.Leaving != "" && !k.LeavingTold
	}, (*reports).applyLeaving},
	{"not all was uploaded", lostUploads, (*reports).applyNotUploaded},
	{"data cap used up", func(k knownNode, r leaseReport) bool {
		return newlyCapped(k.cappedUntil, k.CapTold, r.at)
	}, (*reports).applyCap},
	{"image digest", func(k knownNode, r leaseReport) bool {
		return k.imageDigest == "" && r.now.ImageDigest != "" && len(r.now.ImageDigest) <= maxDigest
	}, func(rp *reports, _ *node, r leaseReport) { rp.row.ImageDigest = r.now.ImageDigest }},
	{"command started", func(k knownNode, r leaseReport) bool {
		return r.now.Started && k.goAt != nil && k.StartedAt == nil
	}, (*reports).applyStart},
	{"command exited", exitChanged, (*reports).applyExit},
	{"state", stateChanged, (*reports).applyState},

	{"well or not", func(k knownNode, r leaseReport) bool {
		return k.StartedAt != nil && unwell(*r.now) == r.row.NodeStatus.Good
	}, nil},
	{"trouble", func(k knownNode, r leaseReport) bool {
		trouble, _ := troubleOf(*r.now)
		return k.StartedAt != nil && string(trouble) != r.row.NodeStatus.Trouble
	}, nil},
	{"silent peers", func(k knownNode, r leaseReport) bool {
		return k.StartedAt != nil && !slices.Equal(r.down, r.row.NodeStatus.PeersDown)
	}, nil},
	{"lost node is back", func(k knownNode, r leaseReport) bool {
		return lifecycle.NodeState(k.State) == lifecycle.NodeLost && r.goodMS > 0
	}, nil},
	{"who failed is undecided", func(_ knownNode, r leaseReport) bool { return r.row.InDoubt }, nil},
}

const (
	maxDigest    = 128
	maxPreflight = 64 << 10 // bytes of JSON
)

// needsLock reports whether the report changes anything that is decided under the cluster's lock. Most reports do not:
// they only say that all is still well.
func (r leaseReport) needsLock() bool {
	switch {
	case r.row.LeaseGoneAt != nil:
		return false
	case r.gone, r.freesGPUs:
		return true
	case r.row.Node.LeaseID != r.row.LeaseID: // the rank went on elsewhere
		return false
	case r.row.LeaseEndedAt != nil: // only what was not uploaded, and whether the node was up until it had to stop
		stop := r.row.StopAt
		return lostUploads(knownNode{Node: r.row.Node}, r) ||
			stop != nil && r.row.NodeStatus.LastGoodMs < stop.UnixMilli() && r.goodMS >= stop.UnixMilli()
	case r.now == nil:
		return false
	}
	k := knownNode{Node: r.row.Node, nodes: int(r.row.NodeCount), goAt: r.row.GoAt, imageDigest: r.row.ImageDigest,
		cappedUntil: r.row.CappedUntil}
	return slices.ContainsFunc(reportFacts, func(f reportFact) bool { return f.changed(k, r) })
}

// reports puts what hosts report of a locked cluster into it, and parts with leases of which nothing is left.
type reports struct {
	now     time.Time
	row     *dbq.Cluster
	spec    market.Spec
	out     *effects
	members *members
	news    *news
	life    *life

	// lost are leases of lost hosts whose ranks continued elsewhere and of which something may still be left on the host.
	lost []dbq.LostLeasesRow
}

// applyReport puts one lease's report into the change. The report was read without the lock, so everything is checked
// again.
func (rp *reports) applyReport(r leaseReport) {
	n := rp.members.byLease(r.row.LeaseID)
	switch {
	case n == nil:
		switch {
		case r.gone:
			rp.partLost(r.row.LeaseID)
		case r.freesGPUs:
			rp.freeLost(r.row.LeaseID)
		}
		return
	case n.ended != nil:
		rp.applyEnded(n, r)
		return
	case r.now == nil || r.now.Epoch != int(n.Epoch):
		return
	}
	for _, f := range reportFacts {
		if f.apply != nil && f.changed(rp.members.known(n), r) {
			f.apply(rp, n, r)
		}
	}
}

// applyEnded puts the report of a lease that has ended into the change.
func (rp *reports) applyEnded(n *node, r leaseReport) {
	if r.now != nil && r.now.Epoch == int(n.Epoch) && lostUploads(rp.members.known(n), r) {
		rp.applyNotUploaded(n, r)
	}
	switch {
	case n.gone != nil:
	case r.gone:
		rp.part(n)
	case r.freesGPUs && n.gpusFree == nil:
		rp.freeGPUs(n)
	}
}

// startsAgain reports whether a node that had reported its address died before the barrier was opened, and is started
// again by its host. If a later report overtakes this one, the next report repairs it: it brings the new address.
func startsAgain(k knownNode, r leaseReport) bool {
	return r.now.StartsAgain && r.now.WGKey == "" && k.WgKey != "" && k.StartedAt == nil && k.goAt == nil
}

func (rp *reports) applyStartAgain(n *node, r leaseReport) {
	reason, why := troubleOf(*r.now)
	n.WgKey, n.Endpoints, n.dirty = "", []string{}, true
	rp.life.step(n, lifecycle.NodeAgain, reason, why)
	rp.life.raiseLive() // the others wait for it, and blame no one
}

func addressChanged(k knownNode, r leaseReport) bool {
	return r.now.WGKey != "" && agentapi.PeerKey(r.now.WGKey) &&
		(r.now.WGKey != k.WgKey || !slices.Equal(agentapi.PeerEndpoints(r.now.Endpoints), k.Endpoints))
}

func (rp *reports) applyAddress(n *node, r leaseReport) {
	n.WgKey, n.Endpoints, n.dirty = r.now.WGKey, agentapi.PeerEndpoints(r.now.Endpoints), true
	rp.life.raisePeers(n) // they learn where it is
}

func preflightChanged(k knownNode, r leaseReport) bool {
	return r.now.Preflight != nil && len(k.Preflight) <= len("{}") && preflightJSON(r.now.Preflight) != nil
}

// preflightJSON is how a preflight is stored; nil if it is too large.
func preflightJSON(p *agentapi.Preflight) []byte {
	b, err := json.Marshal(p)
	if err != nil || len(b) >= maxPreflight {
		return nil
	}
	return b
}

func (rp *reports) applyPreflight(n *node, r leaseReport) {
	n.Preflight, n.dirty = preflightJSON(r.now.Preflight), true
}

func (rp *reports) applyOwnerUse(n *node, r leaseReport) {
	n.OwnerUseTold, n.dirty = true, true
	rp.news.addOwnerUseEvent(n, r.now.OwnerMB)
}

func (rp *reports) applyLeaving(n *node, r leaseReport) {
	n.LeavingTold, n.dirty = true, true
	rp.news.notifyLeaving(n, r.now.Leaving)
}

func lostUploads(k knownNode, r leaseReport) bool {
	return r.now != nil && len(r.now.NotUploaded) > 0 && !k.UploadsLostTold
}

func (rp *reports) applyNotUploaded(n *node, r leaseReport) {
	n.UploadsLostTold, n.dirty = true, true
	rp.news.notifyNotUploaded(n, r.now.NotUploaded)
}

func (rp *reports) applyCap(n *node, _ leaseReport) {
	n.CapTold, n.dirty = n.capped, true
	rp.news.addCapEvent(n)
}

// applyStart stores when the command started: as its host proves it, but not before we opened the barrier. A report
// that was long under way, as from an agent that was killed meanwhile, takes nothing from what ran.
func (rp *reports) applyStart(n *node, r leaseReport) {
	from := latest(r.from, *rp.row.GoAt)
	n.StartedAt, n.dirty = &from, true
}

func exitChanged(k knownNode, r leaseReport) bool {
	e, _, _ := nodeEvent(*r.now, k.nodes)
	return e == lifecycle.NodeReportsExited && k.StartedAt != nil && k.ExitCode == nil
}

func (rp *reports) applyExit(n *node, r leaseReport) {
	code, at := int32(*r.now.ExitCode), latest(r.exit, *n.StartedAt)
	n.ExitCode, n.ExitAt, n.dirty = &code, &at, true
	if code != 0 {
		rp.life.raiseLive() // the others report soon: see exited
	}
}

// stateChanged reports whether the report moves the node by its table. Before the barrier was opened, nothing of the
// renter's can have exited.
func stateChanged(k knownNode, r leaseReport) bool {
	e, _, _ := nodeEvent(*r.now, k.nodes)
	_, moves := lifecycle.NextNode(lifecycle.NodeState(k.State), e)
	return moves && (e != lifecycle.NodeReportsExited || k.StartedAt != nil)
}

func (rp *reports) applyState(n *node, r leaseReport) {
	e, reason, detail := nodeEvent(*r.now, len(rp.members.nodes))
	if rp.life.step(n, e, reason, detail) && e == lifecycle.NodeReportsFailed &&
		reason == lifecycle.ReasonPreflightFailed {
		rp.life.raiseLive() // the others report soon: see startFailed
	}
}
