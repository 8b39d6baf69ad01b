package cluster

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// reportFact is one thing that a host may report of a lease and that is decided under the cluster's lock.
type reportFact struct {
	name string
	// changed reports whether the report says something new. It is called twice: without the lock, to find out whether
	// the report needs the lock at all (most do not), and under the lock, before apply.
	changed func(k knownNode, r leaseReport) bool
	// apply puts the fact into a change. It is nil for facts that saveStatuses stores with the node's status: under the
	// lock, assess decides what follows from them.
	apply func(x *lockedCluster, n *node, r leaseReport)
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
	{"node starts again", startsAgain, (*lockedCluster).applyStartAgain},
	{"address", addressChanged, (*lockedCluster).applyAddress},
	{"preflight", preflightChanged, (*lockedCluster).applyPreflight},
	{"owner's programs use the GPU", func(k knownNode, r leaseReport) bool {
		return r.now.OwnerMB > 0 && !k.OwnerUseTold
	}, (*lockedCluster).applyOwnerUse},
	{"its cloud announces an interruption", func(k knownNode, r leaseReport) bool {
		return r.now.Leaving != "" && !k.LeavingTold
	}, (*lockedCluster).applyLeaving},
	{"not all was uploaded", lostUploads, (*lockedCluster).applyNotUploaded},
	{"data cap used up", func(k knownNode, r leaseReport) bool {
		return newlyCapped(k.cappedUntil, k.CapTold, r.at)
	}, (*lockedCluster).applyCap},
	{"image digest", func(k knownNode, r leaseReport) bool {
		return k.imageDigest == "" && r.now.ImageDigest != "" && len(r.now.ImageDigest) <= maxDigest
	}, func(x *lockedCluster, _ *node, r leaseReport) { x.row.ImageDigest = r.now.ImageDigest }},
	{"command started", func(k knownNode, r leaseReport) bool {
		return r.now.Started && k.goAt != nil && k.StartedAt == nil
	}, (*lockedCluster).applyStart},
	{"command exited", exitChanged, (*lockedCluster).applyExit},
	{"state", stateChanged, (*lockedCluster).applyState},

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

// applyReport puts one lease's report into the change. The report was read without the lock, so everything is checked
// again.
func (x *lockedCluster) applyReport(r leaseReport) {
	n := x.byLease(r.row.LeaseID)
	switch {
	case n == nil:
		switch {
		case r.gone:
			x.partLost(r.row.LeaseID)
		case r.freesGPUs:
			x.freeLost(r.row.LeaseID)
		}
		return
	case n.ended != nil:
		x.applyEnded(n, r)
		return
	case r.now == nil || r.now.Epoch != int(n.Epoch):
		return
	}
	for _, f := range reportFacts {
		if f.apply != nil && f.changed(x.known(n), r) {
			f.apply(x, n, r)
		}
	}
}

// applyEnded puts the report of a lease that has ended into the change.
func (x *lockedCluster) applyEnded(n *node, r leaseReport) {
	if r.now != nil && r.now.Epoch == int(n.Epoch) && lostUploads(x.known(n), r) {
		x.applyNotUploaded(n, r)
	}
	switch {
	case n.gone != nil:
	case r.gone:
		x.part(n)
	case r.freesGPUs && n.gpusFree == nil:
		x.freeGPUs(n)
	}
}

// known is what the change knows of a node.
func (x *lockedCluster) known(n *node) knownNode {
	return knownNode{Node: n.Node, nodes: len(x.nodes), goAt: x.row.GoAt, imageDigest: x.row.ImageDigest,
		cappedUntil: n.capped}
}

// startsAgain reports whether a node that had reported its address died before the barrier was opened, and is started
// again by its host. If a later report overtakes this one, the next report repairs it: it brings the new address.
func startsAgain(k knownNode, r leaseReport) bool {
	return r.now.StartsAgain && r.now.WGKey == "" && k.WgKey != "" && k.StartedAt == nil && k.goAt == nil
}

func (x *lockedCluster) applyStartAgain(n *node, r leaseReport) {
	reason, why := troubleOf(*r.now)
	n.WgKey, n.Endpoints, n.dirty = "", []string{}, true
	x.step(n, lifecycle.NodeAgain, reason, why)
	x.raiseLive() // the others wait for it, and blame no one
}

func addressChanged(k knownNode, r leaseReport) bool {
	return r.now.WGKey != "" && agentapi.PeerKey(r.now.WGKey) &&
		(r.now.WGKey != k.WgKey || !slices.Equal(agentapi.PeerEndpoints(r.now.Endpoints), k.Endpoints))
}

func (x *lockedCluster) applyAddress(n *node, r leaseReport) {
	n.WgKey, n.Endpoints, n.dirty = r.now.WGKey, agentapi.PeerEndpoints(r.now.Endpoints), true
	x.raisePeers(n) // they learn where it is
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

func (x *lockedCluster) applyPreflight(n *node, r leaseReport) {
	n.Preflight, n.dirty = preflightJSON(r.now.Preflight), true
}

func (x *lockedCluster) applyOwnerUse(n *node, r leaseReport) {
	n.OwnerUseTold, n.dirty = true, true
	x.addOwnerUseEvent(n, r.now.OwnerMB)
}

func (x *lockedCluster) applyLeaving(n *node, r leaseReport) {
	n.LeavingTold, n.dirty = true, true
	x.notifyLeaving(n, r.now.Leaving)
}

func lostUploads(k knownNode, r leaseReport) bool {
	return r.now != nil && len(r.now.NotUploaded) > 0 && !k.UploadsLostTold
}

func (x *lockedCluster) applyNotUploaded(n *node, r leaseReport) {
	n.UploadsLostTold, n.dirty = true, true
	x.notifyNotUploaded(n, r.now.NotUploaded)
}

func (x *lockedCluster) applyCap(n *node, _ leaseReport) {
	n.CapTold, n.dirty = n.capped, true
	x.addCapEvent(n)
}

// applyStart stores when the command started: as its host proves it, but not before we opened the barrier. A report
// that was long under way, as from an agent that was killed meanwhile, takes nothing from what ran.
func (x *lockedCluster) applyStart(n *node, r leaseReport) {
	from := latest(r.from, *x.row.GoAt)
	n.StartedAt, n.dirty = &from, true
}

func exitChanged(k knownNode, r leaseReport) bool {
	e, _, _ := nodeEvent(*r.now, k.nodes)
	return e == lifecycle.NodeReportsExited && k.StartedAt != nil && k.ExitCode == nil
}

func (x *lockedCluster) applyExit(n *node, r leaseReport) {
	code, at := int32(*r.now.ExitCode), latest(r.exit, *n.StartedAt)
	n.ExitCode, n.ExitAt, n.dirty = &code, &at, true
	if code != 0 {
		x.raiseLive() // the others report soon: see exited
	}
}

// stateChanged reports whether the report moves the node by its table. Before the barrier was opened, nothing of the
// renter's can have exited.
func stateChanged(k knownNode, r leaseReport) bool {
	e, _, _ := nodeEvent(*r.now, k.nodes)
	_, moves := lifecycle.NextNode(lifecycle.NodeState(k.State), e)
	return moves && (e != lifecycle.NodeReportsExited || k.StartedAt != nil)
}

func (x *lockedCluster) applyState(n *node, r leaseReport) {
	e, reason, detail := nodeEvent(*r.now, len(x.nodes))
	if x.step(n, e, reason, detail) && e == lifecycle.NodeReportsFailed && reason == lifecycle.ReasonPreflightFailed {
		x.raiseLive() // the others report soon: see startFailed
	}
}
