package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
)

// A lease that is too large for the link, or that cannot be read, ends with the reason, and its neighbour starts.
func TestHostState_LeavesOutWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 3})
	good := w.rent(spec(1, 1))
	s := spec(1, 1)
	s.Env["A"] = strings.Repeat("x", 20<<10)
	large, unreadable := w.rent(s), w.rent(spec(1, 1))
	w.exec("UPDATE cluster SET secrets = '\\x00' WHERE id = $1", unreadable.ID)
	small := cluster.New(w.d, w.market, nil, cluster.Config{Currency: usd, Box: w.Box(), MaxState: 10 << 10})
	d := w.desired(small, w.hosts[0].id)
	if len(d.Leases) != 1 || d.Leases[0].Cluster != good.ID.String() {
		t.Errorf("%d leases: %+v", len(d.Leases), d.Leases)
	}
	for _, c := range []cluster.Cluster{large, unreadable} {
		got := w.get(c)
		if got.Reason != lifecycle.ReasonUnsendable || got.Nodes[0].Detail == "" {
			t.Errorf("%s: %s %s", got.State, got.Reason, got.Nodes[0].Detail)
		}
	}
	if got := w.get(good); got.Reason != "" {
		t.Errorf("%s: %s", got.State, got.Reason)
	}
}

// A state that does not fit even so is not sent, and the host need not ask for it again at once.
func TestHostState_NothingFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.rent(spec(1, 1))
	w.exec("UPDATE cluster SET go_at = clock_timestamp() WHERE id = $1", c.ID)
	tiny := cluster.New(w.d, w.market, nil, cluster.Config{Currency: usd, Box: w.Box(), MaxState: 100})
	got, err := tiny.Hosts.HostState(w.ctx, w.hosts[0].id, agentapi.Sync{Revision: 0})
	if err != nil || got.Desired != nil || got.Revision != 0 || len(got.Extensions) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A node takes no more of the message to its host than was counted when it was rented.
func TestRent_CountsWhatTheHostGets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 2})
	s := spec(3, 2)
	s.Env["A"] = strings.Repeat("<é\u2028\x01\\", 2000)
	s.Command = []string{strings.Repeat(`"`, 1000)}
	s.Ports = []market.Port{{Port: 8888, Protocol: "http"}}
	s.RegistryAuth = &market.RegistryAuth{Username: "u", Password: strings.Repeat("\x01", 100)}
	w.rent(s)
	for _, h := range w.hosts {
		for _, l := range w.desired(w.clusters[0], h.id).Leases {
			if n := agentapi.SizeOf(l); n > s.HostBytes() || n < s.HostBytes()/2 {
				t.Errorf("%d bytes, counted %d", n, s.HostBytes())
			}
		}
	}
}

// A value that PostgreSQL refuses costs only the lease that has it.
func TestReport_AValueThatCannotBeStoredCostsOneLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 3})
	h := w.hosts[0]
	var all []cluster.Cluster
	for range 3 {
		all = append(all, w.rent(spec(1, 1)))
	}
	d := w.desired(w.clusters[0], h.id)
	s := agentapi.Sync{Protocol: agentapi.Protocol, BootID: h.boot, BootMS: h.bootMS(), Full: true, Revision: d.Revision}
	for _, c := range all {
		i := slices.IndexFunc(d.Leases, func(l agentapi.LeaseSpec) bool { return l.Cluster == c.ID.String() })
		s.Leases = append(s.Leases, agentapi.LeaseStatus{LeaseRef: d.Leases[i].LeaseRef, State: agentapi.NodePulling,
			Progress: agentapi.Progress{Step: "layers"}})
	}
	s.Leases[0].Progress.Uploads = &agentapi.Uploads{Problem: "\x00"}                                    // of its status
	s.Leases[1].State, s.Leases[1].Preflight = agentapi.NodeJoining, &agentapi.Preflight{Detail: "\x00"} // of its cluster
	w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h.id, s, nil))
	if got := w.get(all[2]).Nodes[0]; got.State != lifecycle.NodePulling || got.Progress.Step != "layers" {
		t.Errorf("%+v", got)
	}
}
