//go:build net

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// replaceable is a cluster whose lost ranks other hosts take.
func replaceable(s client.Spec) client.Spec {
	dear := 100 * money.Micro(money.Unit/1000)
	s.OnNodeFailure, s.MaxPricePerHour = "replace", &dear
	return s
}

// awaitReplaced waits until the cluster runs in its next epoch, and checks that only one rank has moved, and kept its
// name and address.
func (f *field) awaitReplaced(t *testing.T, r *renter, c client.Cluster, from *box) client.Cluster {
	t.Helper()
	var now client.Cluster
	defer func() {
		if t.Failed() {
			t.Log(r.timeline(t, c))
		}
	}()
	eventually(t, "another host takes the rank", func() bool {
		var err error
		if now, err = r.Clusters.Get(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s: %s\n%s", now.State, now.Detail, r.timeline(t, c))
		}
		return now.State == client.Running && now.Epoch > c.Epoch
	})
	for i, n := range now.Nodes {
		was := c.Nodes[i]
		if moved := n.HostID != was.HostID; moved != (was.HostID == from.ID) || n.Address != was.Address || n.ID != was.ID {
			t.Errorf("rank %d was %+v and is %+v\n%s", i, was, n, r.timeline(t, c))
		}
	}
	if now.Epoch != c.Epoch+1 {
		t.Errorf("epoch %d after %d\n%s", now.Epoch, c.Epoch, r.timeline(t, c))
	}
	return now
}

// awaitUnbilled waits until the cluster is no longer billed.
func (f *field) awaitUnbilled(t *testing.T, r *renter, c client.Cluster) client.Cluster {
	t.Helper()
	var now client.Cluster
	eventually(t, "the seconds stop counting", func() bool {
		var err error
		if now, err = r.Clusters.Get(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		return !now.Billing
	})
	return now
}

// windowClosed is when a cluster's first window ended, in ms since the epoch.
const windowClosed = `SELECT closed_ms FROM cluster_window WHERE cluster_id = $1 AND n = 1`

// blocked keeps one host's UDP from every other, while it and the server go on hearing each other: it is the one that
// is replaced, though it says the same of all others.
func (f *field) blocked(t *testing.T) {
	r := f.renter(t, 50*money.Unit)
	c := r.run(t, replaceable(f.job(5, time.Hour)))
	r.awaitLine(t, c, 0, "step ")
	f.symA.Run("nft", "table inet wall { chain out { type filter hook output priority 0; meta l4proto udp drop; }; "+
		"chain in { type filter hook input priority 0; meta l4proto udp drop; }; }")
	defer f.symA.Run("nft", "delete", "table", "inet", "wall")
	now := f.awaitReplaced(t, r, c, f.symA)
	r.awaitLine(t, now, 0, "step ")
	u := f.done(t, r, now)
	if len(u.Credits) != 1 || u.Credits[0].HostID != f.symA.ID {
		t.Errorf("credited: %+v\n%s", u.Credits, r.timeline(t, c))
	}
}

// cutOff pulls one host's cable: its seconds stop where it was last known to be well, another host takes its rank, and
// when it comes back it cleans up.
func (f *field) cutOff(t *testing.T) {
	r := f.renter(t, 50*money.Unit)
	c := r.run(t, replaceable(f.job(5, time.Hour)))
	r.awaitLine(t, c, 0, "step ")
	cut := time.Now()
	f.symB.Link.Set(testnet.Fault{Cut: true})
	restored := false
	mend := func() {
		if !restored {
			restored = true
			f.symB.Link.Set(testnet.Fault{})
		}
	}
	defer mend()
	lost := f.awaitUnbilled(t, r, c)
	detected := time.Since(cut)
	if closed := f.sql(t, windowClosed, c.ID); closed > cut.UnixMilli()+1000 {
		t.Errorf("the window ended %d ms after the cut\n%s", closed-cut.UnixMilli(), r.timeline(t, c))
	}
	t.Logf("%s %s: %s", lost.State, lost.Reason, lost.Detail)
	now := f.awaitReplaced(t, r, c, f.symB)
	t.Logf("%s from the cut to the end of the charging, %s to the command running on the other host",
		detected.Round(100*time.Millisecond), time.Since(cut).Round(100*time.Millisecond))
	r.awaitLine(t, now, 0, "step ")
	mend()
	eventually(t, "the host that came back has cleaned up", func() bool { return len(f.symB.Left()) == 0 })
	u := f.done(t, r, now)
	if len(u.Credits) != 1 || u.Credits[0].Reason != "host_lost" || u.Credits[0].HostID != f.symB.ID {
		t.Errorf("credited: %+v\n%s", u.Credits, r.timeline(t, c))
	}
	f.symB.AwaitSelling(t)
}

// cutOffForGood is the same under on_node_failure: fail: the cluster ends with a sentence.
func (f *field) cutOffForGood(t *testing.T) {
	r := f.renter(t, 50*money.Unit)
	s := f.job(5, time.Hour)
	s.OnNodeFailure = "fail"
	c := r.run(t, s)
	r.awaitLine(t, c, 0, "step ")
	cut := time.Now()
	f.symB.Link.Set(testnet.Fault{Cut: true})
	defer f.symB.Link.Set(testnet.Fault{})
	f.awaitUnbilled(t, r, c)
	got, err := r.Clusters.Wait(t.Context(), c.ID, client.Failed, nil)
	if err != nil || got.Reason != "host_lost" || !strings.Contains(got.Detail, "could no longer be reached") ||
		!strings.Contains(got.Detail, "proven up are charged") {
		t.Errorf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
	}
	t.Log(got.Detail)
	if closed := f.sql(t, windowClosed, c.ID); closed > cut.UnixMilli()+1000 {
		t.Errorf("the window ended %d ms after the cut", closed-cut.UnixMilli())
	}
	f.symB.Link.Set(testnet.Fault{})
	u := r.settle(t, c)
	r.asTheWindows(t, c, u)
	r.owes(t, u)
	f.idle(t)
}
