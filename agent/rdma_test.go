package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// The host gives its RDMA ports to a node that asks for them, is alone on the host, and only while it lends any.
func TestWhoGetsRDMA(t *testing.T) {
	t.Parallel()
	rail := []agentapi.HCA{{Device: "mlx5_0", Port: 1, Verbs: "uverbs0", Lent: true}}
	lend := func(ports []agentapi.HCA) func() []agentapi.HCA { return func() []agentapi.HCA { return ports } }
	for _, tc := range []struct {
		name   string
		fabric string
		lent   func() []agentapi.HCA
		other  string // workload of another lease on the host
		want   int
		detail string
	}{
		{"not asked for", "", lend(rail), "", 0, ""},
		{"asked for", agentapi.FabricRDMA, lend(rail), "", 1, ""},
		{"another node is on the host", agentapi.FabricRDMA, lend(rail), "c0ffee", 0, "is on it"},
		{"another node, not asked for", "", lend(rail), "c0ffee", 0, ""},
		{"nothing is up", agentapi.FabricRDMA, lend(nil), "", 0, "is up"},
		{"nothing is lent", agentapi.FabricRDMA, nil, "", 0, "lends no"},
		{"of a newer server", "rdma2", lend(rail), "", 0, "does not know"},
	} {
		own := &run{ref: agentapi.LeaseRef{Lease: "lease_own", Epoch: 1}, rec: record{WorkID: "mine"}}
		other := &run{ref: agentapi.LeaseRef{Lease: "lease_other", Epoch: 1}, rec: record{WorkID: tc.other}}
		a := &Agent{cfg: Config{RDMA: tc.lent}, leases: map[string]*lease{
			"lease_own": {runs: []*run{own}}, "lease_other": {runs: []*run{other}},
		}}
		got, err := a.rdmaOf(t.Context(), own, agentapi.LeaseSpec{Network: agentapi.Network{Fabric: tc.fabric}})
		if len(got) != tc.want || (err == nil) != (tc.detail == "") {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
			continue
		}
		var refusal container.Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Reason != agentapi.ReasonNotOffered ||
			!strings.Contains(refusal.Detail, tc.detail)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
