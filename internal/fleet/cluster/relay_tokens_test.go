package cluster_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/seal"
)

// What opens the relays lasts five minutes longer than the lease may run, moves with that, and comes together with it.
func TestRelayTokensLastAsLongAsTheLease(t *testing.T) {
	t.Parallel()
	const margin = 5 * time.Minute
	secret := bytes.Repeat([]byte{9}, 32)
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	w.must(err)
	relayed := cluster.New(w.d, w.market, nil, cluster.Config{
		Currency:    usd,
		Box:         box,
		Relays:      []string{"relay.example:3478"},
		RelaySecret: secret,
	})
	claims := func(token string) agentapi.RelayClaims {
		t.Helper()
		parsed, err := agentapi.ParseRelayToken(token)
		w.must(err)
		c, err := agentapi.CheckHello(secret, parsed.Hello([16]byte{}))
		w.must(err)
		return c
	}
	c := w.rounds(w.rent(spec(2, 1)), "running", in(lifecycle.Running))
	check := func(when string) {
		t.Helper()
		for rank := range 2 {
			h := w.hostOf(c, rank)
			s, err := relayed.Hosts.HostState(w.ctx, h.id, agentapi.Sync{})
			w.must(err)
			d, ext := *s.Desired, s.Extensions
			if len(d.Leases) != 1 || len(ext) != 1 || len(d.Leases[0].Network.Relays) != 1 {
				t.Fatalf("%s: %+v, %+v", when, d, ext)
			}
			without, err := w.clusters[0].Hosts.HostState(w.ctx, h.id, agentapi.Sync{})
			if w.must(err); without.Extensions[0].RelayToken != "" {
				t.Errorf("%s: renewed without relays", when)
			}
			if ext[0].RelayToken != d.Leases[0].Network.RelayToken {
				t.Errorf("%s: the desired state and the extension have different tokens", when)
			}
			got := claims(ext[0].RelayToken)
			want := time.UnixMilli(ext[0].RunUntilMS).Add(margin).Truncate(time.Second)
			if got.Cluster != [16]byte(c.ID.UUID()) || int(got.Rank) != rank || int(got.Epoch) != ext[0].Epoch ||
				!got.Expires.Equal(want) {
				t.Errorf("%s: rank %d has %+v, which should last until %s", when, rank, got, want)
			}
		}
	}
	check("running")
	w.exec("UPDATE lease SET run_until = run_until + interval '10 minutes' WHERE cluster_id = $1", c.ID)
	check("authorised further")
	// A rank that goes on elsewhere has a lease before money is held for it.
	w.exec("UPDATE lease SET run_until = NULL WHERE cluster_id = $1", c.ID)
	h := w.hostOf(c, 0)
	token := w.desired(relayed, h.id).Leases[0].Network.RelayToken
	if left := time.Until(claims(token).Expires); left < margin-time.Minute || left > 2*margin+time.Minute {
		t.Errorf("before it is authorised a token lasts %s", left)
	}
}
