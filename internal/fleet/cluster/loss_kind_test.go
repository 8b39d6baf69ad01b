package cluster_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
)

// Which part of a node is dead is told apart, in one sentence for each, by what its host says, what its peers hear, and
// who is silent.
func TestKindsOfLossAreToldApart(t *testing.T) {
	t.Parallel()
	trouble := func(reason, detail string) func(w *world, c cluster.Cluster) {
		return func(w *world, c cluster.Cluster) {
			w.behave(1, func(_ *fakeHost, r *run) {
				if r.Started {
					r.Good, r.Trouble, r.TroubleDetail = false, reason, detail
				}
			})
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		}
	}
	for _, tc := range []struct {
		name   string
		happen func(w *world, c cluster.Cluster)
		state  cluster.State
		reason cluster.Reason
		says   string // of the node, a regular expression
	}{
		{"GPU", trouble("gpu_failed", "GPU-1: Xid 79: GPU has fallen off the bus"), cluster.Failed, cluster.ReasonGPUFailed,
			"Xid 79"},
		{"overlay, as its host says", trouble("overlay_failed", "the process does not answer"), cluster.Degraded,
			cluster.ReasonOverlayFailed, "does not answer"},
		{"engine", trouble("runtime_failed", "the container engine does not answer"), cluster.Degraded,
			cluster.ReasonRuntimeFailed, "engine"},
		{"what no host may say", trouble("completed", "ha"), cluster.Degraded, cluster.ReasonHostLost, "not well"},
		{"the path between two hosts that are well", func(w *world, c cluster.Cluster) {
			w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{1} })
			w.behave(1, func(_ *fakeHost, r *run) { r.PeersDown = []int{0} })
			w.must(w.hostOf(c, 0).sync(w.ctx, 0))
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		}, cluster.Degraded, cluster.ReasonPeersUnreachable, "^$"},
		{"container", func(w *world, c cluster.Cluster) {
			w.fail(w.hostOf(c, 1), agentapi.ReasonGuestDied)
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		}, cluster.Failed, cluster.ReasonGuestDied, ""},
		{"agent", func(w *world, c cluster.Cluster) {
			w.quiet(c, 1, time.Minute)
			w.must(w.hostOf(c, 0).sync(w.ctx, 0)) // hears the node
			w.tick(c)
		}, cluster.Degraded, cluster.ReasonAgentLost, "rank 0 hears the node"},
		{"host", func(w *world, c cluster.Cluster) {
			w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{1} })
			w.quiet(c, 1, time.Minute)
			w.must(w.hostOf(c, 0).sync(w.ctx, 0))
			w.tick(c)
		}, cluster.Degraded, cluster.ReasonHostLost, `^no report for [1-9][0-9]*m[0-9]+s, and rank 0 hears nothing`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
			c := w.runUp(spec(2, 1))
			w.must(w.hostOf(c, 0).sync(w.ctx, 0))
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
			tc.happen(w, c)
			_, text := w.events(c)
			if c = w.get(c); c.State != tc.state || c.Reason != tc.reason || c.Billing {
				t.Fatalf("%s %s: %s\n%s", c.State, c.Reason, c.Detail, text)
			}
			if !strings.Contains(text, tc.reason.Happened()) || !regexp.MustCompile(tc.says).MatchString(c.Nodes[1].Detail) {
				t.Errorf("node: %s\n%s", c.Nodes[1].Detail, text)
			}
		})
	}
}

// A dead host is heard of by its peers first; what is known better later is told.
func TestWhatIsKnownBetterLaterIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.quiet(c, 1, time.Minute)
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.tick(c)
	if c = w.get(c); c.Reason != cluster.ReasonAgentLost {
		t.Fatalf("%s: %s", c.Reason, c.Detail)
	}
	w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{1} })
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	if c = w.get(c); c.Reason != cluster.ReasonHostLost || c.Nodes[1].Reason != cluster.ReasonHostLost ||
		c.State != cluster.Degraded {
		_, text := w.events(c)
		t.Fatalf("%s: %s\n%s", c.Reason, c.Detail, text)
	}
}
