package web

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metering"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) clusterPage(v *visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "no such cluster")
	}
	c, err := s.viewCluster(v.r.Context(), v.who, cl, v.r.FormValue("measure"))
	if err != nil {
		return err
	}
	c.LogRank = rankOf(v.r.FormValue("rank"), c.Ranks)
	if err := s.tailLogs(v.r.Context(), v.who.Org, cl, &c); err != nil {
		return err
	}
	return s.render(v, view.ClusterPage(v.page(c.Name, "clusters"), c))
}

// rankOf reads ?rank=: a number, or -1 for all.
func rankOf(text string, ranks int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= ranks {
		return -1
	}
	return n
}

// viewCluster reads all that the live parts of the page show.
func (s *Web) viewCluster(ctx context.Context, who account.Principal, cl id.Cluster, measure string) (view.Cluster, error) {
	c, err := s.Clusters.Get(ctx, who.Org, cl)
	if err != nil {
		return view.Cluster{}, err
	}
	usage, err := metering.ClusterUsage(ctx, s.DB.Q, cl)
	if err != nil {
		return view.Cluster{}, err
	}
	events, err := s.Clusters.Events(ctx, who.Org, cl, 0, 500)
	if err != nil {
		return view.Cluster{}, err
	}
	now := s.Now()
	out := view.Cluster{
		ID: c.ID.String(), Name: c.Name, Image: c.Spec.Image, Summary: summary(c), Where: "overlay " + c.Network.CIDR,
		State: clusterState(c), Formation: formation(c), Callout: callout(c), Currency: c.Currency,
		Strip: s.strip(c, usage, now), Phases: phases(c, events, now), Actions: actions(c),
		Bandwidth: bandwidth(c), Events: timeline(events, now), Ranks: len(c.Nodes), Ended: c.State.Final(), Measure: measure,
	}
	ready := 0
	for _, n := range c.Nodes {
		out.Nodes = append(out.Nodes, nodeRow(n, usage, now))
		if n.State == cluster.NodeReady {
			ready++
		}
	}
	out.NodesNote = fmt.Sprintf("%d of %d ready; on failure: %s", ready, len(c.Nodes), c.Spec.OnNodeFailure)
	if c.RunningAt != nil {
		out.PhaseNote = view.Dur(c.RunningAt.Sub(c.CreatedAt)) + " from create to running"
	}
	return out, nil
}

// callout is what needs the renter's attention, if anything: what happened, what was charged, what to do.
func callout(c cluster.Cluster) *view.Note {
	switch {
	case c.State == cluster.Failed:
		return &view.Note{Tone: "bad", Icon: "failed", Title: c.Reason.Happened(), Text: c.Detail}
	case c.State == cluster.Degraded:
		return &view.Note{Tone: "warn", Icon: "degraded", Title: c.Reason.Happened(), Text: c.Detail}
	case c.State.Ended() && c.Reason != cluster.ReasonReleasedByUser:
		return &view.Note{Tone: "idle", Icon: "info", Title: c.Reason.Happened(), Text: c.Detail}
	}
	return nil
}

func (s *Web) strip(c cluster.Cluster, u metering.Usage, now time.Time) view.ClusterStrip {
	st := view.ClusterStrip{
		Cost: c.CostSoFar, Billed: time.Duration(c.BillableSeconds), Rate: c.PricePerHour, GPUs: c.Spec.GPUs(), Currency: c.Currency,
		Running: c.Billing, Since: clockSince(c, now), Runway: "–",
	}
	switch {
	case c.Billing:
		st.Metering = view.State{Word: "meter running", Icon: "running", Tone: "live"}
		st.SecondOfMinute = now.Second()
	case c.State.Final() && u.Settled:
		st.Metering = view.State{Word: "settled", Icon: "check", Tone: "idle"}
	case c.State.Ended():
		st.Metering = view.State{Word: "meter stopped", Icon: "stopped", Tone: "idle"}
	case c.RunningAt == nil:
		st.Metering = view.State{Word: "free until running", Icon: "pause", Tone: "idle"}
	default:
		st.Metering = view.State{Word: "meter paused", Icon: "pause", Tone: "warn"}
	}
	if c.RunUntil != nil && !c.State.Ended() {
		st.Runway = view.Dur(c.RunUntil.Sub(now))
		st.RunwayNote = "paid through " + view.Clock(*c.RunUntil, now) + ", extended while money lasts"
	}
	if c.Spec.Budget != nil {
		st.Budget = *c.Spec.Budget
		st.BudgetNote = view.Dur(time.Duration(money.MillisOf(*c.Spec.Budget-c.CostSoFar, c.PricePerHour))*time.Millisecond) + " more, never above"
	}
	if c.RunningAt != nil {
		st.SinceNote = "not billed: " + view.Dur(c.RunningAt.Sub(c.CreatedAt)) + " start"
	} else {
		st.SinceNote = "nothing billed"
	}
	return st
}

// clockSince counts h:mm:ss from creation to the end, or to now.
func clockSince(c cluster.Cluster, now time.Time) string {
	end := now
	if c.EndedAt != nil {
		end = *c.EndedAt
	}
	d := int(max(0, end.Sub(c.CreatedAt).Seconds()))
	return fmt.Sprintf("%d:%02d:%02d", d/3600, d/60%60, d%60)
}

func nodeRow(n cluster.Node, u metering.Usage, now time.Time) view.NodeRow {
	row := view.NodeRow{
		Rank: n.Rank, GPUs: len(n.GPUs), Host: n.HostName, State: nodeState(n), Squares: squares(n), Address: n.Address, Percent: -1,
		Trouble: n.State == cluster.NodeLost || n.State == cluster.NodeFailed, Detail: n.Detail,
	}
	row.Progress, row.Percent = progress(n, now)
	for _, l := range u.Lines {
		if l.Rank == n.Rank {
			row.Cost += l.Cost
		}
	}
	return row
}

// progress says what a node is doing, with a share of the whole where there is one, and what it waits for.
func progress(n cluster.Node, now time.Time) (text string, percent float64) {
	p := n.Progress
	switch {
	case n.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *n.ExitCode), -1
	case n.State == cluster.NodePulling && p.Total > 0:
		return fmt.Sprintf("%s of %s", view.Bytes(p.Done), view.Bytes(p.Total)), 100 * float64(p.Done) / float64(p.Total)
	case p.WaitingFor != "":
		return "waiting: " + p.WaitingFor, -1
	case n.State == cluster.NodeReady:
		return "for " + view.Dur(now.Sub(n.Since)), -1
	case p.Step != "":
		return p.Step, -1
	}
	return "", -1
}

func actions(c cluster.Cluster) []view.Action {
	var out []view.Action
	for _, a := range c.Actions {
		switch a {
		case cluster.ActionRestart:
			out = append(out, view.Action{Name: string(a), Label: "Restart", Consequence: "The command starts again on the same hosts; the meter stands still in between."})
		case cluster.ActionRelease:
			out = append(out, view.Action{Name: string(a), Label: "Release", Class: "danger",
				Consequence: fmt.Sprintf("Stops %s per hour. Nothing after this moment is billed; what is held returns to the wallet; disks are wiped.", view.PerHour(c.PricePerHour))})
		}
	}
	return out
}

// bandwidth is what preflight measured between each pair of ranks, shaded between the least and the most.
func bandwidth(c cluster.Cluster) *view.Bandwidth {
	n := len(c.Nodes)
	if n < 2 || c.Network.BusbwGbps == 0 {
		return nil
	}
	b := &view.Bandwidth{Busbw: fmt.Sprintf("%.1f", c.Network.BusbwGbps), Cells: make([][]view.BandwidthCell, n)}
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
	for i := range n {
		for j := range n {
			cell := view.BandwidthCell{Step: -1}
			if g := at(i, j); g > 0 {
				cell = view.BandwidthCell{Value: fmt.Sprintf("%.1f", g), Step: 5}
				if high > low {
					cell.Step = int(5 * (g - low) / (high - low))
				}
			}
			b.Cells[i] = append(b.Cells[i], cell)
		}
	}
	b.Low, b.High = fmt.Sprintf("%.1f", low), fmt.Sprintf("%.1f", high)
	if c.Spec.Network.MinGbps > 0 {
		b.Note = fmt.Sprintf("At least %.1f was asked for.", c.Spec.Network.MinGbps)
	}
	return b
}

// timeline is newest first.
func timeline(events []cluster.Event, now time.Time) []view.Event {
	out := make([]view.Event, 0, len(events))
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		icon, tone := eventLook(e.Kind)
		out = append(out, view.Event{Time: view.Clock(e.At, now), Title: e.Title, Why: e.Detail, Icon: icon, Tone: tone})
	}
	return out
}

// eventLook is the icon and tone of an entry by what happened; anything else is a plain note.
func eventLook(kind string) (icon, tone string) {
	switch cluster.Trigger(kind) {
	case cluster.OnStartFailed, cluster.OnStartTimeout, cluster.OnLossFinal, cluster.OnWorkloadFailed:
		return "failed", "bad"
	case cluster.OnNodeLost, cluster.OnRankIgnored:
		return "lost", "warn"
	case cluster.OnAllStarted, cluster.OnResumed, cluster.OnNodeBack:
		return "running", "ok"
	case cluster.OnAllAtBarrier:
		return "preflight", "ok"
	case cluster.OnMoneyOut, cluster.OnMaxDuration:
		return "coin", "warn"
	case cluster.OnRelease, cluster.OnAllGone:
		return "released", "idle"
	case cluster.OnCompleted:
		return "check", "ok"
	case cluster.OnRented:
		return "provisioning", "idle"
	}
	if state, ok := strings.CutPrefix(kind, "node_"); ok {
		look := nodeState(cluster.Node{State: cluster.NodeState(state)})
		return look.Icon, look.Tone
	}
	return "info", "idle"
}
