//go:build net

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testfield"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// field is a world with six hosts: two in one network, one behind a router that keeps ports, two behind routers that do
// not, and one that is reached straight and dearer, so that it is the last to be taken.
type field struct {
	*world
	a1, a2, cone, symA, symB, spare *box
}

func newField(t *testing.T) *field {
	t.Helper()
	f := &field{world: newWorld(t)}
	home := func(name string, s *testnet.Segment, ip string) *box {
		return f.Box(t, name, s, "192.168.1.1", "1.00", ip)
	}
	lan := f.Home(testnet.Preserving)
	f.a1, f.a2 = home("a1", lan, "192.168.1.10/24"), home("a2", lan, "192.168.1.11/24")
	f.cone = home("cone", f.Home(testnet.Preserving), "192.168.1.10/24")
	f.symA, f.symB = home("sym-a", f.Home(testnet.Symmetric), "192.168.1.10/24"), home("sym-b", f.Home(testnet.Symmetric),
		"192.168.1.10/24")
	f.spare = f.Box(t, "spare", f.Internet, "", "3.00", "203.0.113.50/24")
	return f
}

// TestNet is everything over the field, one after the other: they share hosts, and the machine.
func TestNet(t *testing.T) {
	f := newField(t)
	for _, tc := range []struct {
		name string
		test func(*field, *testing.T)
	}{
		{"every pair takes the best path", (*field).bestPaths},
		{"five hosts train", (*field).train},
		{"a bad line is borne", (*field).badLine},
		{"a slow pair fails for free", (*field).slowPair},
		{"parts die", (*field).partsDie},
		{"a host's UDP is blocked", (*field).blocked},
		{"a host is cut off and replaced", (*field).cutOff},
		{"a host is cut off and the cluster fails", (*field).cutOffForGood},
	} {
		if !t.Run(tc.name, func(t *testing.T) { tc.test(f, t) }) && t.Failed() {
			t.Log("the rest runs on what this left")
		}
	}
	f.check(t)
}

// done releases a cluster, and checks its bill and that nothing of it is left.
func (f *field) done(t *testing.T, r *renter, c client.Cluster) client.Usage {
	t.Helper()
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	u := r.settle(t, c)
	r.asTheWindows(t, c, u)
	r.owes(t, u)
	f.idle(t)
	return u
}

func (f *field) bestPaths(t *testing.T) {
	r := f.renter(t, 50*money.Unit)
	c := r.run(t, f.spec(5, 1, "sleep", "86400"))
	f.awaitPaths(t, r, c, map[[2]*box]string{
		{f.a1, f.a2}: "lan", {f.a1, f.cone}: "punched", {f.a2, f.cone}: "punched",
		{f.symA, f.symB}: "relay", {f.symA, f.a1}: "relay", {f.symB, f.cone}: "relay",
	})
	c, err := r.Clusters.Get(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Network; n.BusbwGbps <= 0 || len(n.PairGbps) != 5 || n.PairGbps[0][4] <= 0 || n.RTTMicros[4][0] <= 0 {
		t.Errorf("measured: %+v", n)
	}
	f.done(t, r, c)
}

func (f *field) train(t *testing.T) {
	r := f.renter(t, 50*money.Unit)
	c := r.rent(t, f.job(5, time.Second))
	u := r.trained(t, c)
	r.billed(t, c, u)
	r.owes(t, u)
	f.idle(t)
}

// badLine makes one host's line late and lossy under a running job.
func (f *field) badLine(t *testing.T) {
	r := f.renter(t, 50*money.Unit)
	c := r.run(t, f.job(5, 6*time.Second))
	f.symA.Link.Set(testnet.Fault{Delay: 10 * time.Millisecond, Loss: 0.01})
	defer f.symA.Link.Set(testnet.Fault{})
	u := r.trained(t, c)
	if f.symA.Link.Lost() == 0 {
		t.Error("the line has lost nothing")
	}
	r.billed(t, c, u)
	r.owes(t, u)
	f.idle(t)
}

// slowPair asks for several times what one host's line gives. Where this machine is too busy for the others to give it
// either, the slowest pair is still that host's.
func (f *field) slowPair(t *testing.T) {
	f.symB.Link.Set(testnet.Fault{Delay: 50 * time.Millisecond, Loss: 0.04})
	defer f.symB.Link.Set(testnet.Fault{})
	r := f.renter(t, 50*money.Unit)
	s := f.job(5, time.Second)
	s.Network = &client.Network{MinGbps: 0.05}
	c := r.rent(t, s)
	got, err := r.Clusters.Wait(t.Context(), c.ID, client.Failed, nil)
	if err != nil || got.Reason != "preflight_failed" || got.RunningAt != nil {
		t.Fatalf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
	}
	t.Log(got.Detail)
	slow := false
	for _, n := range got.Nodes {
		if f.Boxes[n.HostID] == f.symB {
			slow = strings.Contains(got.Detail, fmt.Sprintf("from rank %d to", n.Rank)) ||
				strings.Contains(got.Detail, fmt.Sprintf("to rank %d with", n.Rank))
		}
	}
	if !slow || !strings.Contains(got.Detail, "Nothing was charged") {
		t.Errorf("the sentence does not name the slow host, or the bill: %s", got.Detail)
	}
	if u := r.settle(t, c); u.Cost != 0 {
		t.Errorf("it cost %s", u.Cost)
	} else {
		r.owes(t, u)
	}
	f.idle(t)
}

// partsDie kills each part of the platform, or of a node behind a symmetric router, while a job runs.
func (f *field) partsDie(t *testing.T) {
	for _, tc := range []struct {
		part  string
		kill  func(t *testing.T, b *box, c client.Cluster)
		fails string // "": the job goes on
	}{
		{"overlay", func(t *testing.T, b *box, _ client.Cluster) { testfield.KillAll(t, b.Host, "muster-agent overlay ") },
			""},
		{"agent", func(t *testing.T, b *box, _ client.Cluster) { b.Agent.Kill(t); b.Agent.Start(t) }, ""},
		{"engine", func(t *testing.T, b *box, _ client.Cluster) { b.Engine.Kill(); b.Engine.Start() }, ""},
		{"relay", func(t *testing.T, _ *box, _ client.Cluster) { f.Relay.Kill(t); f.Relay.Start(t) }, ""},
		{"server", func(t *testing.T, _ *box, _ client.Cluster) { f.Server.Kill(t); f.Server.Start(t); f.AwaitServer(t) },
			""},
		{"guest", func(t *testing.T, b *box, _ client.Cluster) { killContainer(t, b, "guest") }, "guest_died"},
		{"workload", func(t *testing.T, b *box, _ client.Cluster) { killContainer(t, b, "work") }, "workload_failed"},
	} {
		t.Run(tc.part, func(t *testing.T) {
			r := f.renter(t, 50*money.Unit)
			lasts := 10 * time.Second
			if tc.fails != "" {
				lasts = time.Hour
			}
			c := r.run(t, f.job(5, lasts))
			r.awaitLine(t, c, 0, "step ")
			tc.kill(t, f.symA, c)
			if tc.fails == "" {
				u := r.trained(t, c)
				r.billed(t, c, u)
				r.owes(t, u)
				f.idle(t)
				return
			}
			got, err := r.Clusters.Wait(t.Context(), c.ID, client.Failed, nil)
			if err != nil || got.Reason != tc.fails {
				t.Errorf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
			}
			t.Log(got.Detail)
			u := r.settle(t, c)
			r.asTheWindows(t, c, u)
			r.owes(t, u)
			f.idle(t)
		})
	}
}

// killContainer ends the first process of the host's guest or work container as soon as there is one.
func killContainer(t *testing.T, b *box, role string) {
	t.Helper()
	eventually(t, "there is a "+role+" to kill", func() bool { return b.SignalContainer(role, "KILL") })
}
