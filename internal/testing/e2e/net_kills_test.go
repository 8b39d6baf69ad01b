//go:build net

package e2e

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testfield"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// mortal is a part of the platform or of one node, how it is killed and, where nothing else does it, how it is
// restarted.
type mortal struct {
	name  string
	kill  func(t *testing.T, b *box) (done bool) // false: it is not there yet, or no more
	again func(t *testing.T, b *box)
	ends  []string // reasons with which a cluster may end that is not released
}

func (f *field) mortals() []mortal {
	daemonOf := func(d func(b *box) *testfield.Daemon) (func(*testing.T, *box) bool, func(*testing.T, *box)) {
		return func(t *testing.T, b *box) bool { d(b).Kill(t); return true }, func(t *testing.T, b *box) { d(b).Start(t) }
	}
	container := func(role string) func(*testing.T, *box) bool {
		return func(_ *testing.T, b *box) bool { return b.SignalContainer(role, "KILL") }
	}
	overlay := func(_ *testing.T, b *box) (done bool) {
		for _, pid := range b.Processes("muster-agent overlay ") {
			done = unix.Kill(pid, unix.SIGKILL) == nil || done
		}
		return done
	}
	killAgent, startAgent := daemonOf(func(b *box) *testfield.Daemon { return b.Agent })
	killRelay, startRelay := daemonOf(func(*box) *testfield.Daemon { return f.Relay })
	killServer, startServer := daemonOf(func(*box) *testfield.Daemon { return f.Server })
	return []mortal{
		{"agent", killAgent, startAgent, []string{"completed"}},
		{"overlay", overlay, nil, []string{"completed"}},
		{"guest", container("guest"), nil, []string{"completed", "guest_died"}},
		{"workload", container("work"), nil, []string{"completed", "workload_failed", "runtime_failed"}},
		{"engine", func(_ *testing.T, b *box) bool { b.Engine.Kill(); return true },
			func(_ *testing.T, b *box) { b.Engine.Start() }, []string{"completed"}},
		{"relay", killRelay, startRelay, []string{"completed"}},
		{"server", killServer, func(t *testing.T, b *box) { startServer(t, b); f.AwaitServer(t) }, []string{"completed"}},
	}
}

// moment is a phase of a rental, in which the victim is held until it is struck.
type moment struct {
	name    string
	hold    func(f *field, t *testing.T, victim, other *box, s *client.Spec) (let func()) // before the rent
	reached func(n client.Node) bool                                                      // by the victim's node
	// the renter releases it while it runs
	release bool
}

var moments = []moment{
	// The victim reaches no registry.
	{name: "pulling", hold: func(f *field, t *testing.T, victim, _ *box, s *client.Spec) func() {
		s.Image = f.freshImage(t)
		return wall(victim, "tcp dport 5000 drop")
	}, reached: func(n client.Node) bool { return n.State == "pulling" }},
	// Another rank's host does not reach the server, and its key is not known.
	{name: "joining", hold: func(_ *field, _ *testing.T, _, other *box, _ *client.Spec) func() {
		return wall(other, "tcp dport { 4222, 8443 } drop")
	}, reached: func(n client.Node) bool { return n.State == "joining" }},
	// Another rank's line lets none of the overlay through: all have their peers, none can measure.
	{name: "preflight", hold: func(_ *field, _ *testing.T, _, other *box, _ *client.Spec) func() {
		return wall(other, "meta l4proto udp drop")
	}, reached: func(n client.Node) bool { return n.Progress.Step == "preflight" }},
	// The victim's command does not get the signal to end.
	{
		name:    "stopping",
		release: true,
		reached: func(n client.Node) bool { return n.State == "stopping" || n.State == "stopped" },
	},
}

// wall keeps some of what a host sends and gets from it.
func wall(b *box, rule string) (down func()) {
	b.Run("nft", "table inet wall { chain out { type filter hook output priority 0; "+rule+
		"; }; chain in { type filter hook input priority 0; "+rule+"; }; }")
	return func() { b.Run("nft", "delete", "table", "inet", "wall") }
}

// freshImage is the demo's image with something that no host has seen before.
func (f *field) freshImage(t *testing.T) string {
	outside := &platform{Info: devstack.Info{DemoImage: f.Images + "/muster/demo:latest"}}
	return f.Pulled(outside.bigImage(t, 1))
}

// Each part is killed in each phase before and after a job's running (TestNet kills them while it runs), on a host
// behind a symmetric router. The cluster goes on to its end, or ends with a reason that names the part; what never ran
// is free, no command runs twice, what ran is billed as the windows say, and nothing is left.
func TestNetKills(t *testing.T) {
	f := &field{world: newWorld(t)}
	f.cone = f.Box(t, "cone", f.Home(testnet.Preserving), "192.168.1.1", "1.00", "192.168.1.10/24")
	f.symA = f.Box(t, "sym-a", f.Home(testnet.Symmetric), "192.168.1.1", "1.00", "192.168.1.10/24")
	f.symB = f.Box(t, "sym-b", f.Home(testnet.Symmetric), "192.168.1.1", "1.00", "192.168.1.10/24")
	for _, m := range f.mortals() {
		t.Run(m.name, func(t *testing.T) {
			for _, at := range moments {
				t.Run(at.name, func(t *testing.T) { f.strike(t, m, at) })
			}
		})
	}
	f.check(t)
}

// strike rents, kills the part when the victim's node is at the moment, and checks what comes of it.
func (f *field) strike(t *testing.T, m mortal, at moment) {
	r := f.renter(t, 10*money.Unit)
	s := f.spec(3, 1, "nap", "2")
	if at.release {
		s.Command = []string{"sleep", "86400"}
	}
	let := func() {}
	if at.hold != nil {
		let = at.hold(f, t, f.symA, f.cone, &s)
	}
	free := false
	defer func() { // a test that fails leaves the hosts to the next
		if !free {
			let()
		}
	}()
	c := r.rent(t, s)
	defer func() {
		if t.Failed() {
			_, _ = r.Clusters.Release(t.Context(), c.ID)
		}
	}()
	if at.release {
		c = r.await(t, c, client.Running)
		eventually(t, "the command does not listen", func() bool { return f.symA.SignalContainer("work", "STOP") })
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	seen := f.awaitMoment(t, r, c, at)
	gone := m.kill(t, f.symA)
	let()
	free = true
	if !gone { // it comes later, or is no more
		eventually(t, "there is a "+m.name+" to kill", func() bool {
			if m.kill(t, f.symA) {
				return true
			}
			now, err := r.Clusters.Get(t.Context(), c.ID)
			return err == nil && now.State.Ended()
		})
	}
	if m.again != nil {
		m.again(t, f.symA)
	}
	got, err := r.Clusters.Wait(t.Context(), c.ID, client.Released, nil)
	if err != nil && !got.State.Ended() {
		t.Fatalf("%v\n%s", err, r.timeline(t, c))
	}
	want := m.ends
	switch {
	case at.release:
		want = []string{"released_by_user"}
	}
	if !slices.Contains(want, got.Reason) || got.Epoch != 1 {
		t.Errorf("it ended %s in epoch %d, %s: %s; want %v\n%s", got.State, got.Epoch, got.Reason, got.Detail, want,
			r.timeline(t, c))
	}
	u := r.settle(t, c)
	if got.RunningAt == nil && u.Cost != 0 {
		t.Errorf("it never ran and cost %s", u.Cost)
	}
	r.asTheWindows(t, c, u)
	for rank := range c.Nodes {
		if log := r.logs(t, c, rank); strings.Count(log, "began") > 1 {
			t.Errorf("rank %d ran twice:\n%s", rank, log)
		}
	}
	r.owes(t, u)
	f.idle(t)
	t.Logf("struck while %s: %s, %s s billed. %s", seen, got.Reason, u.BillableSeconds, got.Detail)
}

// awaitMoment waits until the victim's node is at the moment, and returns what it is then. A cluster that has ended is
// past every moment.
func (f *field) awaitMoment(t *testing.T, r *renter, c client.Cluster, at moment) (seen string) {
	t.Helper()
	eventually(t, "the victim is "+at.name, func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range now.Nodes {
			if n.HostID == f.symA.ID && (at.reached(n) || now.State == client.Released || now.State == client.Failed) {
				seen = strings.TrimSpace(n.State + " " + n.Progress.Step)
				return true
			}
		}
		return false
	})
	return seen
}
