package cluster_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// One sentence for each case says which part of a node is dead. It follows from what the node's host reports, what its
// peers receive, and who is silent.
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
		state  lifecycle.State
		reason lifecycle.Reason
		says   string // of the node, a regular expression
	}{
		{"GPU", trouble("gpu_failed", "GPU-1: Xid 79: GPU has fallen off the bus"), lifecycle.Failed,
			lifecycle.ReasonGPUFailed,
			"Xid 79"},
		{"overlay, as its host says", trouble("overlay_failed", "the process does not answer"), lifecycle.Degraded,
			lifecycle.ReasonOverlayFailed, "does not answer"},
		{"engine", trouble("runtime_failed", "the container engine does not answer"), lifecycle.Degraded,
			lifecycle.ReasonRuntimeFailed, "engine"},
		{"what no host may say", trouble("completed", "ha"), lifecycle.Degraded, lifecycle.ReasonHostLost, "not well"},
		{"the path between two hosts that are well", func(w *world, c cluster.Cluster) {
			w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{1} })
			w.behave(1, func(_ *fakeHost, r *run) { r.PeersDown = []int{0} })
			w.must(w.hostOf(c, 0).sync(w.ctx, 0))
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		}, lifecycle.Degraded, lifecycle.ReasonPeersUnreachable, "^$"},
		{"container", func(w *world, c cluster.Cluster) {
			w.fail(w.hostOf(c, 1), agentapi.ReasonGuestDied)
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		}, lifecycle.Failed, lifecycle.ReasonGuestDied, ""},
		{"agent", func(w *world, c cluster.Cluster) {
			w.quiet(c, 1, time.Minute)
			w.must(w.hostOf(c, 0).sync(w.ctx, 0)) // receives from the node
			w.tick(c)
		}, lifecycle.Degraded, lifecycle.ReasonAgentLost, "rank 0 still reaches the node"},
		{"host", func(w *world, c cluster.Cluster) {
			w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{1} })
			w.quiet(c, 1, time.Minute)
			w.must(w.hostOf(c, 0).sync(w.ctx, 0))
			w.tick(c)
		}, lifecycle.Degraded, lifecycle.ReasonHostLost, `^no report for [1-9][0-9]*m[0-9]+s, and rank 0 receives nothing`},
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

// The peers of a dead host report it first. What is known better later is added.
func TestWhatIsKnownBetterLaterIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.quiet(c, 1, time.Minute)
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.tick(c)
	if c = w.get(c); c.Reason != lifecycle.ReasonAgentLost {
		t.Fatalf("%s: %s", c.Reason, c.Detail)
	}
	w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{1} })
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	if c = w.get(c); c.Reason != lifecycle.ReasonHostLost || c.Nodes[1].Reason != lifecycle.ReasonHostLost ||
		c.State != lifecycle.Degraded {
		_, text := w.events(c)
		t.Fatalf("%s: %s\n%s", c.Reason, c.Detail, text)
	}
}
