package clusters

import (
	"fmt"
	"math"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// runningNow sums up the running clusters of the list.
func runningNow(list []cluster.Cluster) string {
	active, gpus, rate := 0, 0, money.Micro(0)
	for _, c := range list {
		if c.State == lifecycle.Released || c.State == lifecycle.Failed {
			continue
		}
		active, gpus, rate = active+1, gpus+c.Spec.GPUs(), rate+c.PricePerHour
	}
	if active == 0 {
		return ""
	}
	return fmt.Sprintf("%d active, %s, %s per hour.", active, view.Plural(gpus, "GPU", "GPUs"), view.PerHour(rate))
}

func (s *Pages) actOnCluster(v *page.Visit) error {
	c, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "cluster not found")
	}
	_, err = s.Clusters.Rentals.Act(v.R.Context(), v.Who, c, cluster.Action(v.R.FormValue("action")))
	return s.after(v, c, "", err)
}

func Summary(c cluster.Cluster) string {
	model := ""
	if len(c.Nodes) > 0 && len(c.Nodes[0].GPUs) > 0 {
		model = " × " + view.ModelName(c.Nodes[0].GPUs[0].Model)
	}
	if c.Spec.Nodes == 1 {
		return fmt.Sprintf("%d%s", c.Spec.GPUsPerNode, model)
	}
	return fmt.Sprintf("%d nodes × %d%s", c.Spec.Nodes, c.Spec.GPUsPerNode, model)
}

// clusterState returns how a state is shown: colour, icon and word.
func clusterState(c cluster.Cluster) view.State { return StateOf(c.State, c.Reason) }

// StateOf is clusterState for pages that know a cluster's state and reason alone.
func StateOf(state lifecycle.State, reason lifecycle.Reason) view.State {
	switch state {
	case lifecycle.Provisioning:
		return view.State{Word: "Provisioning", Icon: "provisioning", Tone: "live"}
	case lifecycle.Running:
		return view.State{Word: "Running", Icon: "running", Tone: "ok"}
	case lifecycle.Degraded:
		return view.State{Word: "Degraded", Icon: "degraded", Tone: "warn"}
	case lifecycle.Releasing:
		return view.State{Word: "Releasing", Icon: "releasing", Tone: "idle"}
	case lifecycle.Failed:
		return view.State{Word: "Failed", Icon: "failed", Tone: "bad"}
	}
	if reason == lifecycle.ReasonCompleted {
		return view.State{Word: "Completed", Icon: "check", Tone: "idle"}
	}
	return view.State{Word: "Released", Icon: "released", Tone: "idle"}
}

func nodeState(n cluster.Node) view.State {
	switch n.State {
	case lifecycle.NodePending:
		return view.State{Word: "Pending", Icon: "pending", Tone: "idle"}
	case lifecycle.NodePulling:
		return view.State{Word: "Pulling", Icon: "pulling", Tone: "live"}
	case lifecycle.NodeStarting:
		return view.State{Word: "Starting", Icon: "starting", Tone: "live"}
	case lifecycle.NodeJoining:
		if n.Progress.Step == "preflight" {
			return view.State{Word: "Preflight", Icon: "preflight", Tone: "live"}
		}
		return view.State{Word: "Joining", Icon: "joining", Tone: "live"}
	case lifecycle.NodeReady:
		return view.State{Word: "Ready", Icon: "ready", Tone: "ok"}
	case lifecycle.NodeLost:
		return view.State{Word: "Lost", Icon: "lost", Tone: "warn"}
	case lifecycle.NodeStopping:
		return view.State{Word: "Stopping", Icon: "stopping", Tone: "idle"}
	case lifecycle.NodeFailed:
		return view.State{Word: "Failed", Icon: "failed", Tone: "bad"}
	}
	return view.State{Word: "Stopped", Icon: "stopped", Tone: "idle"}
}

// squares returns the class of a node's GPUs in the formation.
func squares(n cluster.Node) string {
	switch n.State {
	case lifecycle.NodeReady:
		return "ready"
	case lifecycle.NodeLost:
		return "repl"
	case lifecycle.NodeFailed:
		return "bad"
	case lifecycle.NodeStopped, lifecycle.NodeStopping:
		return "busy"
	}
	return "wait"
}

// maxDrawn is up to how many nodes a formation draws each GPU. Of more it draws one square per node, in a block.
const maxDrawn = 16

func formation(c cluster.Cluster) [][]string {
	if n := len(c.Nodes); n > maxDrawn {
		wide := int(math.Ceil(math.Sqrt(float64(n))))
		var rows [][]string
		for i, x := range c.Nodes {
			if i%wide == 0 {
				rows = append(rows, nil)
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], squares(x))
		}
		return rows
	}
	rows := make([][]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		rows = append(rows, view.Row(len(n.GPUs), squares(n)))
	}
	return rows
}
