package clusters

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/web/view"
)

// bandwidth returns what preflight measured between each pair of ranks, shaded between the lowest and the highest
// value.
func bandwidth(c cluster.Cluster) *Bandwidth {
	n := len(c.Nodes)
	if n < 2 || c.Network.BusbwGbps == 0 {
		return nil
	}
	b := &Bandwidth{Busbw: view.Gbps(c.Network.BusbwGbps), Cells: make([][]BandwidthCell, n)}
	low, high := 0.0, 0.0
	at := func(i, j int) float64 {
		if i < len(c.Network.PairGbps) && j < len(c.Network.PairGbps[i]) {
			return c.Network.PairGbps[i][j]
		}
		return 0
	}
	for i := range n {
		for j := range n {
			if g := at(i, j); i != j && g > 0 {
				high = max(high, g)
				if low == 0 || g < low {
					low = g
				}
			}
		}
	}
	b.Low, b.High, b.Ranks = fmt.Sprintf("%.1f", low), fmt.Sprintf("%.1f", high), n
	if c.Spec.Network.MinGbps > 0 {
		b.Note = fmt.Sprintf("At least %.1f was asked for.", c.Spec.Network.MinGbps)
	}
	if n > maxDrawn {
		b.Cells, b.Pairs = nil, slowest(c, at)
		return b
	}
	for i := range n {
		for j := range n {
			cell := BandwidthCell{Step: -1}
			if g := at(i, j); g > 0 {
				cell = BandwidthCell{Value: fmt.Sprintf("%.1f", g), Step: 5}
				if fmt.Sprintf("%.1f", high) != fmt.Sprintf("%.1f", low) { // equal as printed: one shade
					cell.Step = int(5 * (g - low) / (high - low))
				}
			}
			cell.Path = pathTo(c.Nodes[i], j)
			b.Cells[i] = append(b.Cells[i], cell)
		}
	}
	return b
}

// slowestShown is how many ways between ranks a large cluster lists.
const slowestShown = 8

// slowest returns the slowest ways between ranks that were measured.
func slowest(c cluster.Cluster, at func(i, j int) float64) (out []BandwidthPair) {
	type way struct {
		from, to int
		gbps     float64
	}
	var ways []way
	for i := range c.Nodes {
		for j := range c.Nodes {
			if g := at(i, j); i != j && g > 0 {
				ways = append(ways, way{i, j, g})
			}
		}
	}
	slices.SortStableFunc(ways, func(a, b way) int { return cmp.Compare(a.gbps, b.gbps) })
	for _, w := range ways[:min(len(ways), slowestShown)] {
		out = append(out, BandwidthPair{From: w.from, To: w.to, Value: fmt.Sprintf("%.1f", w.gbps),
			Path: pathTo(c.Nodes[w.from], w.to)})
	}
	return out
}

// pathTo returns how a node's overlay reaches another rank; "" = not known.
func pathTo(n cluster.Node, rank int) string {
	for _, p := range n.Paths {
		if p.Rank == rank {
			return p.Path
		}
	}
	return ""
}

// timeline returns the events of a cluster, newest first.
func timeline(events []cluster.Event, now time.Time) []Event {
	out := make([]Event, 0, len(events))
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		icon, tone := eventLook(e.Kind)
		out = append(out, Event{Time: view.Clock(e.At, now), Title: e.Title, Why: e.Detail, Icon: icon, Tone: tone})
	}
	return out
}

// eventLook returns the icon and tone of an event by its kind; unknown kinds are plain notes.
func eventLook(kind string) (icon, tone string) {
	switch lifecycle.Trigger(kind) {
	case lifecycle.OnStartFailed, lifecycle.OnStartTimeout, lifecycle.OnLossFinal, lifecycle.OnWorkloadFailed:
		return "failed", "bad"
	case lifecycle.OnNodeLost, lifecycle.OnRankIgnored, lifecycle.OnReplacing, lifecycle.OnReplaceWaiting:
		return "lost", "warn"
	case lifecycle.OnAllStarted, lifecycle.OnResumed, lifecycle.OnNodeBack:
		return "running", "ok"
	case lifecycle.OnAllAtBarrier:
		return "preflight", "ok"
	case lifecycle.OnMoneyOut, lifecycle.OnMaxDuration:
		return "coin", "warn"
	case lifecycle.OnRelease, lifecycle.OnAllGone:
		return "released", "idle"
	case lifecycle.OnCompleted:
		return "check", "ok"
	case lifecycle.OnRented, lifecycle.OnReplaced:
		return "provisioning", "idle"
	}
	if state, ok := strings.CutPrefix(kind, "node_"); ok {
		look := nodeState(cluster.Node{State: lifecycle.NodeState(state)})
		return look.Icon, look.Tone
	}
	return "info", "idle"
}
