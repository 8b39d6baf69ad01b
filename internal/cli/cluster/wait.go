package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

func clusterWait(s *base.Session) *cobra.Command {
	var state string
	var timeout time.Duration
	cmd := onCluster(s, "wait", "Wait until a cluster is running or has ended", func(cmd *cobra.Command, c *client.Client,
		cl id.Cluster) error {
		want := client.State(state)
		if state == "ended" {
			want = client.Releasing
		}
		if timeout > 0 {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			cmd.SetContext(ctx)
		}
		return waitFor(s, cmd, c, cl, want)
	})
	cmd.Flags().StringVar(&state, "for", "running", "running, released, failed, or ended for any end")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop waiting after this time (default: never)")
	return cmd
}

// waitFor shows how a cluster comes up: on a terminal the lines of the nodes are redrawn; elsewhere a line is printed
// when something has changed. Progress goes to stderr, the outcome to stdout.
func waitFor(s *base.Session, cmd *cobra.Command, c *client.Client, cl id.Cluster, want client.State) error {
	view := progress{w: cmd.ErrOrStderr(), printed: map[string]string{}}
	if _, ok := base.Terminal(cmd.ErrOrStderr()); ok {
		view.live = true
	}
	v, err := c.Clusters.Wait(cmd.Context(), cl, want, view.update)
	if err != nil {
		if cmd.Context().Err() != nil {
			return fault.New(fault.Unavailable, "the cluster is not %s yet; look at it again: muster cluster show %s", want, cl)
		}
		if s.ForPrograms() && v.State != "" {
			_ = s.Show(cmd, v, nil)
		}
		return err
	}
	return s.Show(cmd, v, func(p *base.Printer) {
		switch {
		case v.State == client.Running:
			p.Line("%s (%s) is running: %s, %s per hour, %s %s per second.", v.Name, v.ID,
				base.Counted(len(v.Nodes), "node"), base.Micro(v.PricePerHour), v.PricePerSecond, v.Currency)
			p.Line("Read its output: muster cluster logs %s --follow", v.ID)
		default:
			p.Line("%s (%s) is %s: %s. Cost: %s %s", v.Name, v.ID, v.State, base.OrDash(v.Reason), base.Cost(v.CostSoFar),
				v.Currency)
		}
	})
}

// progress shows a cluster's nodes as they change.
type progress struct {
	w       io.Writer
	live    bool // a terminal: redraw
	drawn   int
	printed map[string]string
}

func (g *progress) update(c client.Cluster) {
	if g.live {
		g.redraw(c)
		return
	}
	after := fmt.Sprintf("%5.1f s  %s", time.Since(c.CreatedAt).Seconds(), text.OneLine(c.Name))
	g.print("cluster", fmt.Sprintf("%s  %s", after, c.State), string(c.State))
	for _, n := range c.Nodes {
		g.print(fmt.Sprint(n.Rank), fmt.Sprintf("%s  rank %d  %s", after, n.Rank, nodeLine(n)), n.State+n.Progress.Step+
			n.Progress.WaitingFor)
	}
}

// print prints a line when what it is about has changed; a download that goes on is no change.
func (g *progress) print(key, line, state string) {
	if g.printed[key] != state {
		g.printed[key] = state
		fmt.Fprintln(g.w, line)
	}
}

func (g *progress) redraw(c client.Cluster) {
	var b strings.Builder
	if g.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", g.drawn)
	}
	fmt.Fprintf(&b, "\x1b[2K%s  %s  %s\n", text.OneLine(c.Name), c.State, time.Since(c.CreatedAt).Round(time.Second))
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "\x1b[2K  rank %d  %s\n", n.Rank, nodeLine(n))
	}
	g.drawn = 1 + len(c.Nodes)
	_, _ = io.WriteString(g.w, b.String())
}

func nodeLine(n client.Node) string {
	return strings.TrimRight(fmt.Sprintf("%-9s %s", n.State, text.OneLine(progressOf(n))), " ")
}

// progressOf is what a node is doing and what holds it up.
func progressOf(n client.Node) string {
	p := n.Progress
	switch {
	case n.Detail != "" && (n.State == "failed" || n.State == "lost"):
		return n.Detail
	case n.State == "ready" || n.State == "stopped":
		return ""
	case p.WaitingFor != "":
		return p.WaitingFor
	case p.Total > 0 && p.Done < p.Total:
		return fmt.Sprintf("%s %d of %d MB%s", p.Step, p.Done>>20, p.Total>>20, layersOf(p))
	}
	return p.Step
}

// layersOf is how many of the image's layers are there.
func layersOf(p client.Progress) string {
	if len(p.Layers) == 0 {
		return ""
	}
	here := 0
	for _, l := range p.Layers {
		if l.Cached || l.Done >= l.Total {
			here++
		}
	}
	return fmt.Sprintf(", %d of %d layers", here, len(p.Layers))
}
