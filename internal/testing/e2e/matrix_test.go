//go:build matrix

package e2e

import (
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// victim is a part of the platform, how it is killed and, where nothing else does it, how it is restarted.
type victim struct {
	name  string
	kill  func(m *matrix, n node) // nil: by its process, as soon as there is one
	again func(m *matrix)         // restarts it, where nothing else does
	ends  []string                // reasons a cluster may end with when the part dies before its command has ended
}

// matrix is one part's platform.
type matrix struct {
	*platform
	engine *engine
	t      *testing.T // of the case
}

var victims = []victim{
	{name: "agent", kill: func(_ *matrix, n node) { n.signalAgent(syscall.SIGKILL) }, ends: []string{"completed"}},
	{name: "overlay", ends: []string{"completed"}},
	{name: "guest", ends: []string{"completed", "guest_died"}},
	{name: "workload", ends: []string{"completed", "workload_failed", "runtime_failed"}},
	{
		name:  "server",
		kill:  func(m *matrix, _ node) { m.platform.kill(m.t) },
		again: func(m *matrix) { m.platform.again(m.t) },
		ends:  []string{"completed"},
	},
	{name: "database", kill: func(m *matrix, _ node) { m.restartPostgres(m.t) }, ends: []string{"completed"}},
	{
		name:  "docker",
		kill:  func(m *matrix, _ node) { m.engine.kill() },
		again: func(m *matrix) { m.engine.start() },
		ends:  []string{"completed"},
	},
}

// phase is a moment in a rental: so long after the rent, or when something was seen.
type phase struct {
	name    string
	after   time.Duration
	await   func(*matrix, *renter, client.Cluster)
	prepare func(*matrix, *client.Spec) (undo func())
	release bool // the renter releases it
}

// phases are those of a cluster of two that naps for two seconds. A part that is not there yet is killed as soon as it
// is.
func phases() (out []phase) {
	for _, ms := range []int{0, 100, 250, 500, 750, 1000, 1500, 2000, 3000} {
		out = append(out, phase{name: strconv.Itoa(ms) + " ms", after: time.Duration(ms) * time.Millisecond})
	}
	pulls := func(m *matrix, s *client.Spec) func() { s.Image = m.bigImage(m.t, 60); return func() {} }
	held := func(m *matrix, _ *client.Spec) func() { return m.freeze(m.t, "local-2") }
	return append(out,
		phase{
			name:    "pulling",
			prepare: pulls,
			await:   func(m *matrix, r *renter, c client.Cluster) { r.awaitNode(m.t, c, "pulling") },
		},
		phase{
			name:    "joining",
			prepare: held,
			await:   func(m *matrix, r *renter, c client.Cluster) { r.awaitNode(m.t, c, "joining") },
		},
		phase{name: "running", await: func(m *matrix, r *renter, c client.Cluster) { r.await(m.t, c, client.Running) }},
		phase{name: "ending", await: func(m *matrix, r *renter, c client.Cluster) { r.awaitLine(m.t, c, 1, "ended") }},
		phase{name: "released", release: true, await: func(m *matrix, r *renter, c client.Cluster) {
			r.await(m.t, c, client.Running)
			if _, err := r.Clusters.Release(m.t.Context(), c.ID); err != nil {
				m.t.Fatal(err)
			}
		}},
		phase{name: "cleaning", await: func(m *matrix, r *renter, c client.Cluster) {
			eventually(m.t, "the cluster ends", func() bool {
				now, err := r.Clusters.Get(m.t.Context(), c.ID)
				return err == nil && now.State.Ended()
			})
		}},
	)
}

// Every part is killed in every phase of a rental. Each time the cluster comes to the end it should, what ran is paid
// to the millisecond and nothing else, nothing is claimed any more and nothing is left.
func TestMatrix(t *testing.T) {
	for _, v := range victims {
		t.Run(v.name, func(t *testing.T) {
			m := &matrix{t: t}
			var env []string
			if v.name == "docker" {
				m.engine = startEngine(t)
				env = []string{m.engine.host()}
			}
			m.platform = ownIn(t, env)
			for _, ph := range phases() {
				t.Run(ph.name, func(t *testing.T) {
					m.t = t
					m.strike(v, ph)
				})
			}
		})
	}
}

// strike rents, kills the part in the phase, and checks what comes of it.
func (m *matrix) strike(v victim, ph phase) {
	t := m.t
	r := m.renter(t, 10*money.Unit)
	s := m.spec(2, 1, "nap", "2")
	if ph.release {
		s.Command = []string{"sleep", "600"}
	}
	undo := func() {}
	if ph.prepare != nil {
		undo = ph.prepare(m, &s)
	}
	c := r.rent(t, s)
	if ph.await != nil {
		ph.await(m, r, c)
	}
	wait := time.NewTimer(ph.after)
	<-wait.C
	n := m.node(t, c, m.rankOn(t, c, "local-1"))
	gone := m.hit(v, n)
	undo() // what is not there yet comes only now, and a server is not ready before all its hosts are
	if !gone {
		m.hitLater(v, n, r, c)
	}
	if v.again != nil {
		v.again(m)
	}
	r.connect(t)

	got, err := r.Clusters.Wait(t.Context(), c.ID, client.Released, nil)
	if err != nil && !got.State.Ended() {
		t.Fatalf("%v\n%s", err, r.timeline(t, c))
	}
	want := v.ends
	switch {
	case ph.release:
		want = []string{"released_by_user"}
	case ph.name == "cleaning":
		want = []string{"completed"}
	}
	if !slices.Contains(want, got.Reason) {
		t.Errorf("it ended %s, %s: %s; want %v\n%s", got.State, got.Reason, got.Detail, want, r.timeline(t, c))
	}
	u := r.settle(t, c)
	switch {
	case got.Reason == "completed":
		r.paidFor(t, got, u)
	case got.RunningAt == nil && u.Cost != 0:
		t.Errorf("it never ran and cost %s", u.Cost)
	}
	r.owes(t, u)
	m.idle(t)
	m.check(t)
	t.Logf("%s: %s s billed %s", got.Reason, u.BillableSeconds, got.Detail)
}

// rankOn is the rank that runs on a host of the platform.
func (m *matrix) rankOn(t *testing.T, c client.Cluster, host string) int {
	t.Helper()
	for rank := range c.Nodes {
		if m.node(t, c, rank).name == host {
			return rank
		}
	}
	t.Fatalf("no rank on %s", host)
	return 0
}

// hit kills the part, if it is there.
func (m *matrix) hit(v victim, n node) (done bool) {
	if v.kill != nil {
		v.kill(m, n)
		return true
	}
	pid := n.pid(map[string]string{"guest": "guest", "workload": "work", "overlay": "overlay"}[v.name])
	return pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// hitLater waits for the part and kills it. In a cluster that has ended there may be nothing left.
func (m *matrix) hitLater(v victim, n node, r *renter, c client.Cluster) {
	eventually(m.t, "there is a "+v.name+" to kill", func() bool {
		if m.hit(v, n) {
			return true
		}
		now, err := r.Clusters.Get(m.t.Context(), c.ID)
		if err != nil || !now.State.Ended() {
			return false
		}
		m.t.Logf("no %s is left to kill", v.name)
		return true
	})
}
