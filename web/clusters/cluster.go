package clusters

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

func (s *Pages) clusterPage(v *page.Visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "cluster not found")
	}
	return s.showCluster(v, cl, "")
}

// showCluster renders the page of a cluster. refused is why a request of the visitor was not carried out, or "".
func (s *Pages) showCluster(v *page.Visit, cl id.Cluster, refused string) error {
	choice := choiceOf(v)
	c, err := s.viewCluster(v.R.Context(), v.Who, cl, choice, new(readings))
	if err != nil {
		return err
	}
	c.Refused = refused
	c.Grep = strings.TrimSpace(v.R.FormValue("grep"))
	c.LogRank = rankOf(v.R.FormValue("rank"), c.Ranks)
	if err := s.tailLogs(v.R.Context(), v.Who.Org, cl, &c); err != nil {
		return err
	}
	page := v.Page(c.Name, "clusters")
	if !c.Ended {
		page.Live = "/clusters/" + c.ID + "/live?" + choice.query()
	}
	return s.Render(v, ClusterPage(page, c))
}

// after goes back to the page of a cluster, which shows why a request was refused.
func (s *Pages) after(v *page.Visit, cl id.Cluster, part string, err error) error {
	if err == nil {
		return page.Back(v, "/clusters/"+cl.String()+part)
	}
	return s.Again(v, err, func(errs map[string]string) error {
		return s.showCluster(v, cl, view.Message("The action", page.First(errs, "", "action")))
	})
}

// rankOf returns the rank in ?rank=, or -1 for all ranks.
func rankOf(text string, ranks int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= ranks {
		return -1
	}
	return n
}

// viewCluster reads everything that the live parts of the page show. It adds new telemetry to sampled, which is kept
// from one call to the next.
func (s *Pages) viewCluster(ctx context.Context, who account.Principal, cl id.Cluster, choice chartChoice,
	sampled *readings) (Cluster, error) {
	c, err := s.Clusters.Views.Get(ctx, who.Org, cl)
	if err != nil {
		return Cluster{}, err
	}
	cost, err := s.Leases.Cost(ctx, cl)
	if err != nil {
		return Cluster{}, err
	}
	events, err := s.Clusters.Views.Events(ctx, who.Org, cl, 0, 500)
	if err != nil {
		return Cluster{}, err
	}
	now := s.Now()
	if err := s.read(ctx, who, c, now, choice, sampled); err != nil {
		return Cluster{}, err
	}
	out := Cluster{
		ID: c.ID.String(), Name: c.Name, Image: c.Spec.Image, Summary: Summary(c), Where: "overlay " + c.Network.CIDR,
		State: clusterState(c), Formation: formation(c), Callout: callout(c), Currency: c.Currency,
		Strip: s.strip(c, cost, now), Phases: phases(c, events, now), Actions: actions(c),
		Bandwidth: bandwidth(c), Events: timeline(events, now), Ranks: len(c.Nodes), Ended: c.State.Final(),
		Charts: sampled.charts(c, choice),
		Spec:   specRows(c.Spec, c.Currency), AgainCLI: page.CreateLine(c.Spec),
		Notices: s.NoticesOf(ctx, who, c.ID.String()),
	}
	if c.RunningAt != nil {
		if out.NotBilled, err = s.Statements.ClusterNotBilled(ctx, cl); err != nil {
			return Cluster{}, err
		}
	}
	if out.Mounts, err = s.mounts(ctx, who, c, now); err != nil {
		return Cluster{}, err
	}
	ready := 0
	for _, n := range c.Nodes {
		out.Nodes = append(out.Nodes, nodeRow(n, cost, sampled, now))
		if n.State == lifecycle.NodeReady {
			ready++
		}
	}
	out.NodesNote = fmt.Sprintf("%d of %d ready; on failure: %s", ready, len(c.Nodes), c.Spec.OnNodeFailure)
	if c.Spec.ScratchGB > 0 {
		out.NodesNote += fmt.Sprintf("; %d GB scratch each", c.Spec.ScratchGB)
	}
	if c.State.Final() {
		out.NodesNote = "as they ended"
	}
	if r := c.Replacing; r != nil {
		out.NodesNote += fmt.Sprintf("; %d waiting for another host until %s", len(r.Ranks), view.Clock(r.Until, now))
	}
	if out.Connect = s.connect(c, who.CanAny(account.WriteClusters...)); out.Connect != nil {
		out.Connect.open(out.Nodes)
	}
	out.listNodes(choice)
	if c.RunningAt != nil {
		out.PhaseNote = view.Dur(c.RunningAt.Sub(c.CreatedAt)) + " from create to running"
	}
	return out, nil
}

// callout returns what needs the renter's attention, if anything: what happened, what was charged, what to do.
func callout(c cluster.Cluster) *Note {
	switch {
	case c.Doubt != nil:
		note := &Note{Tone: "warn", Icon: "warn", Title: c.Doubt.Why}
		if c.Doubt.Kind == "silent" {
			note.Text = "If every rank proves later that it missed nothing, the time is billed after all."
		}
		return note
	case c.State == lifecycle.Failed:
		return happened("bad", "failed", c)
	case c.State == lifecycle.Degraded:
		return happened("warn", "degraded", c)
	case c.State.Ended() && c.Reason != lifecycle.ReasonReleasedByUser:
		return happened("idle", "info", c)
	}
	return nil
}

// happened returns a note whose title is the first sentence of the detail, and whose text is the rest.
func happened(tone, icon string, c cluster.Cluster) *Note {
	title := c.Reason.Happened()
	return &Note{Tone: tone, Icon: icon, Title: title, Text: strings.TrimSpace(strings.TrimPrefix(c.Detail, title))}
}

func (s *Pages) strip(c cluster.Cluster, u metering.Cost, now time.Time) ClusterStrip {
	st := ClusterStrip{
		Cost:     c.CostSoFar,
		Billed:   time.Duration(c.BillableSeconds),
		Rate:     c.PricePerHour,
		GPUs:     c.Spec.GPUs(),
		Currency: c.Currency,
		Running:  c.Billing,
		Ended:    c.State.Ended(),
		Since:    clockSince(c, now),
		Stops:    stops(c, now),
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
	if c.Spec.Budget != nil {
		st.Budget = *c.Spec.Budget
		st.BudgetNote = "never above"
	}
	if c.Spec.Budget != nil && !c.State.Ended() {
		st.BudgetNote = view.CentsDown(max(0, *c.Spec.Budget-c.CostSoFar)) + " left, never above"
	}
	if c.RunningAt != nil {
		st.SinceNote = "not billed: " + view.Dur(c.RunningAt.Sub(c.CreatedAt)) + " start"
	} else {
		st.SinceNote = "nothing billed"
	}
	return st
}

// clockSince returns h:mm:ss from creation to the end, or to now.
func clockSince(c cluster.Cluster, now time.Time) string {
	end := now
	if c.EndedAt != nil {
		end = *c.EndedAt
	}
	d := int(max(0, end.Sub(c.CreatedAt).Seconds()))
	return fmt.Sprintf("%d:%02d:%02d", d/3600, d/60%60, d%60)
}

func nodeRow(n cluster.Node, u metering.Cost, sampled *readings, now time.Time) NodeRow {
	row := NodeRow{
		Rank:    n.Rank,
		GPUs:    len(n.GPUs),
		Host:    n.HostName,
		State:   nodeState(n),
		Squares: squares(n),
		Address: n.Address,
		Percent: -1,
		Cost:    u.ByRank[n.Rank],
		Trouble: n.State == lifecycle.NodeLost || n.State == lifecycle.NodeFailed,
		Detail:  n.Detail,
	}
	row.Progress, row.Percent = progress(n, now)
	if n.State == lifecycle.NodePulling {
		row.Layers = layers(n.Progress)
	}
	row.Util = sampled.mean(n.Rank, func(s host.Sample) int { return s.Util })
	row.Power = sampled.mean(n.Rank, func(s host.Sample) int { return s.PowerW })
	return row
}

// progress describes what a node is doing and what it waits for, with a percentage if there is one.
func progress(n cluster.Node, now time.Time) (text string, percent float64) {
	p := n.Progress
	switch {
	case n.Uploading != nil:
		what := "uploading"
		if p.Uploads != nil {
			what += " " + view.Bytes(p.Uploads.Bytes)
		}
		return fmt.Sprintf("%s since %s, ends by %s", what, view.Clock(n.Uploading.Since, now),
			view.Clock(n.Uploading.EndsBy, now)), -1
	case n.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *n.ExitCode), -1
	case n.State == lifecycle.NodePulling && p.Total > 0:
		return fmt.Sprintf("%s of %s", view.Bytes(p.Done), view.Bytes(p.Total)), 100 * float64(p.Done) / float64(p.Total)
	case p.WaitingFor != "":
		return "waiting: " + p.WaitingFor, -1
	case n.State == lifecycle.NodeReady:
		return "since " + view.Clock(n.Since, now), -1
	case p.Step != "":
		return p.Step, -1
	}
	return "", -1
}

// maxMoving is how many layers in flight a rank's row names: Docker downloads three at a time.
const maxMoving = 4

// layers describes the progress of an image's layers; nil before they are known.
func layers(p agentapi.Progress) *Layers {
	if len(p.Layers) == 0 {
		return nil
	}
	var out Layers
	here, before := 0, 0
	for _, l := range p.Layers {
		switch {
		case l.Cached:
			here, before = here+1, before+1
		case l.Done >= l.Total:
			here++
		case l.Done > 0 && len(out.Moving) < maxMoving:
			out.Moving = append(out.Moving, Layer{Digest: l.Digest, Percent: 100 * float64(l.Done) / float64(l.Total),
				Text: fmt.Sprintf("%s of %s", view.Bytes(l.Done), view.Bytes(l.Total))})
		}
	}
	out.Summary = fmt.Sprintf("%d of %d layers here", here, len(p.Layers))
	if before > 0 {
		out.Summary += fmt.Sprintf(", %d of them before", before)
	}
	if p.Step == "unpack" {
		out.Summary += "; unpacking"
	}
	return &out
}

func actions(c cluster.Cluster) []view.Action {
	var out []view.Action
	for _, a := range c.Actions {
		switch a {
		case cluster.ActionRestart:
			out = append(out, view.Action{
				Name:        string(a),
				Label:       "Restart",
				Consequence: "The command restarts on the same hosts; the meter pauses in between.",
			})
		case cluster.ActionRelease:
			out = append(out, view.Action{Name: string(a), Label: "Release", Confirm: "Release " + c.Name + "?",
				Consequence: allStop(c)})
		}
	}
	return out
}

// allStop describes what a release does, for its confirmation.
func allStop(c cluster.Cluster) string {
	gpus := fmt.Sprintf("Stops its %d GPUs", c.Spec.GPUs())
	if c.Spec.GPUs() == 1 {
		gpus = "Stops its GPU"
	}
	return fmt.Sprintf("%s now and ends the charge of %s per hour. What is held returns to the wallet, and the disks are "+
		"wiped.", gpus, view.PerHour(c.PricePerHour))
}

// nodesShown is how many nodes of a large cluster the page lists until it is asked for all.
const nodesShown = 12

// listNodes leaves the nodes of a large cluster out that need no attention, unless the visitor wants all.
func (c *Cluster) listNodes(choice chartChoice) {
	all := len(c.Nodes)
	if all <= maxDrawn {
		return
	}
	base := "/clusters/" + c.ID + "?"
	other := choice
	other.all = !choice.all
	c.NodesHref = base + other.query() + "#nodes"
	if choice.all {
		c.NodesLink = "Show fewer"
		return
	}
	c.NodesLink = fmt.Sprintf("Show all %d nodes", all)
	shown := make([]NodeRow, 0, nodesShown)
	for _, calm := range []bool{false, true} { // what is in trouble or still starting comes first
		for _, n := range c.Nodes {
			if (n.State.Tone == "ok" || n.State.Tone == "idle") == calm && len(shown) < nodesShown {
				shown = append(shown, n)
			}
		}
	}
	c.Nodes = shown
}
