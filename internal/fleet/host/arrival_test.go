package host_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A fleet connects at once, with two connections per key: each host gets one session, and an unknown key none. Few
// statements store all of them.
func TestSessions_OneForEachHostThatArrives(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	org, user := fleettest.Org(t, d)
	const hosts = 40
	agents := host.NewAgents(d, nil)
	var enrolled []*fleettest.Agent
	for range hosts {
		enrolled = append(enrolled, fleettest.Enroll(t, d, org, user, 1))
	}
	nonce := []byte("nonce")
	verify := func(a *fleettest.Agent) (host.Link, error) {
		proof, err := a.Link.Sign(nonce)
		if err != nil {
			return host.Link{}, err
		}
		return agents.VerifyLink(t.Context(), a.LinkKey(), nonce, proof)
	}
	var sessions [hosts]atomic.Int64
	var all, looked sync.WaitGroup
	looked.Add(2 * hosts)
	before := k.Statements.Load()
	for i, a := range enrolled {
		for c := range 2 {
			all.Go(func() {
				link, err := verify(a)
				looked.Done()
				if err != nil || link.Host != a.Host || link.Session != 0 {
					t.Errorf("host %d: %+v, %v", i, link, err)
					return
				}
				looked.Wait() // both have seen that there is no session
				conn := host.Conn{Server: "s", Client: uint64(2*i + c), Instance: "i", Address: "192.0.2.1"}
				switch n, err := agents.OpenSession(t.Context(), link, conn); {
				case err == nil && n == 1:
					sessions[i].Add(1)
				case !fault.Is(err, fault.Conflict):
					t.Errorf("host %d: session %d, %v", i, n, err)
				}
			})
		}
	}
	all.Wait()
	for i := range sessions {
		if n := sessions[i].Load(); n != 1 {
			t.Errorf("host %d has %d sessions", i, n)
		}
	}
	if n := k.Statements.Load() - before; n > 2*hosts {
		t.Errorf("%d statements for %d connections", n, 2*hosts)
	}
	_, err := verify(fleettest.NewAgent(t))
	if f := fault.From(err); f == nil || f.Extra["reason"] != "key_unknown" {
		t.Errorf("an unknown key: %v", err)
	}
}

// Of inventories that arrive together only those that are stored as they are count as the same.
func TestSameInventories_OnlyThoseThatAreStored(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	var sent []host.Sent
	for range 3 {
		a := fleettest.Enroll(t, d, org, user, 1)
		inv := fleettest.Inventory(1)
		hash, err := host.HashInventory(inv)
		if err == nil {
			err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return fleettest.RecordInventory(ctx, tx, a.Host, inv)
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, host.Sent{Host: a.Host, Hash: hash})
	}
	other := slices.Clone(sent)
	other[1].Hash = bytes.Repeat([]byte{1}, 32)
	other = append(other, host.Sent{Host: sent[2].Host, Hash: other[1].Hash})
	same, err := host.SameInventories(t.Context(), d, other)
	if err != nil || !slices.Equal(same, []bool{true, false, false, false}) {
		t.Errorf("%v, %v: the first is the same; of the last host it is not known which of two counts", same, err)
	}
	same, err = host.SameInventories(t.Context(), d, sent)
	if err != nil || !slices.Equal(same, []bool{true, true, true}) {
		t.Errorf("%v, %v", same, err)
	}
}
