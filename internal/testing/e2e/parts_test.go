package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// Parts of nodes die, on one platform.
func TestPartsDie(t *testing.T) {
	t.Parallel()
	inTurn(t, own(t), []turn{
		{"while starting", partsDieWhileStarting},
		{"while running", partsDieWhileRunning},
	})
}

// Parts of a node die while its command runs.
func partsDieWhileRunning(t *testing.T, p *platform) {
	t.Cleanup(func() { p.idle(t); p.check(t) })
	for _, tc := range []struct {
		part   string
		kill   func(node)
		state  client.State
		reason string
		detail string
	}{
		{part: "overlay", kill: node.killOverlay, state: client.Released, reason: "completed"},
		{part: "agent", kill: func(n node) { n.signalAgent(syscall.SIGKILL) }, state: client.Released, reason: "completed"},
		{part: "guest", kill: func(n node) { n.killContainer("guest") }, state: client.Failed, reason: "guest_died"},
		{
			part:   "workload",
			kill:   func(n node) { n.killContainer("work") },
			state:  client.Failed,
			reason: "workload_failed",
			detail: "exit code",
		},
	} {
		r := p.renter(t, 10*money.Unit)
		c := r.rent(t, p.endless()) // before anything is killed: a host whose agent is away is not rented
		t.Run(tc.part, func(t *testing.T) {
			t.Parallel()
			c := r.await(t, c, client.Running)
			r.awaitLine(t, c, 1, "step ")
			tc.kill(p.node(t, c, 1))
			if tc.state == client.Released {
				r.enough(t, c)
				u := r.trained(t, c)
				r.billed(t, c, u)
				r.owes(t, u)
				return
			}
			got, err := r.Clusters.Wait(t.Context(), c.ID, tc.state, nil)
			if err != nil || got.Reason != tc.reason || !strings.Contains(got.Detail, tc.detail) {
				t.Errorf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
			}
			u := r.settle(t, c)
			r.owes(t, u)
		})
	}
}

// awaitLine waits until a rank has printed something.
func (r *renter) awaitLine(t *testing.T, c client.Cluster, rank int, text string) {
	t.Helper()
	eventually(t, "the log says "+text, func() bool { return strings.Contains(r.logs(t, c, rank), text) })
}

// billed checks that what ran is paid for, and no more: just the windows, which are all of the run but what trouble
// took that the job survived.
func (r *renter) billed(t *testing.T, c client.Cluster, u client.Usage) {
	t.Helper()
	c, err := r.Clusters.Get(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	ran, story := c.EndedAt.Sub(*c.RunningAt).Seconds(), r.timeline(t, c)
	sec := float64(u.BillableSeconds) / 1000
	if sec <= 0 || sec > ran+0.001+float64(r.p.sql(t, tailMillis, c.ID))/1000 {
		t.Errorf("%s of %.3f s are billed\n%s", u.BillableSeconds, ran, story)
	}
	slack := float64(5 + r.asTheWindows(t, c, u))
	// From the last start to the last end as the hosts prove them; a cluster that was released has no such end.
	const proved = `SELECT coalesce(extract(epoch FROM max(exit_at) - max(started_at)) * 1000, -1)::bigint FROM node WHERE
		cluster_id = $1`
	if ms := r.p.sql(t, proved, c.ID); ms >= 0 && (sec*1000 < float64(ms)-slack && !strings.Contains(story, "node_lost") ||
		sec*1000 > float64(ms)+slack) {
		t.Errorf("%s s are billed, %d ms are proved\n%s", u.BillableSeconds, ms, story)
	}
}

// When parts of a node die before its command runs, it recovers or says why not, and costs nothing until it runs.
func partsDieWhileStarting(t *testing.T, p *platform) {
	agent := func(n node) { n.signalAgent(syscall.SIGKILL) }
	for _, tc := range []struct {
		phase, part string
		kill        func(node)
		reason      string // "completed", or why not
	}{
		{"pulling", "agent", agent, "completed"},
		{"joining", "agent", agent, "completed"},
		{"joining", "overlay", node.killOverlay, "completed"},
		{"joining", "guest", func(n node) { n.killContainer("guest") }, "completed"},
	} {
		t.Run(tc.part+" while "+tc.phase, func(t *testing.T) {
			r := p.renter(t, 10*money.Unit)
			s := p.training(time.Second)
			if tc.phase == "pulling" {
				s.Image = p.bigImage(t, 100)
			}
			thaw := p.freeze(t, "local-2")
			c := r.rent(t, s)
			states := []string{tc.phase}
			if tc.phase == "pulling" {
				states = held
			}
			n := p.node(t, c, r.awaitNode(t, c, states...))
			tc.kill(n)
			thaw()
			if tc.reason == "completed" {
				r.owes(t, r.trained(t, c))
				return
			}
			got, err := r.Clusters.Wait(t.Context(), c.ID, client.Failed, nil)
			if err != nil || got.Reason != tc.reason || got.RunningAt != nil {
				t.Errorf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
			}
			u := r.settle(t, c)
			if u.Cost != 0 {
				t.Errorf("it cost %s", u.Cost)
			}
			r.owes(t, u)
		})
	}
	p.idle(t)
	p.check(t)
}
