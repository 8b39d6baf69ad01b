package hostinfo_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Only ports that the operator names are lent, and of those only ones that can work and belong to no switch.
func TestLend(t *testing.T) {
	t.Parallel()
	rail := func(device string) agentapi.HCA {
		return agentapi.HCA{Device: device, Port: 1, Driver: "mlx5_core", LinkLayer: "InfiniBand", State: "ACTIVE",
			Gbps: 400, Verbs: "uverbs0"}
	}
	with := func(h agentapi.HCA, change func(*agentapi.HCA)) agentapi.HCA { change(&h); return h }
	for _, tc := range []struct {
		name    string
		hcas    []agentapi.HCA
		named   []string
		locked  bool
		want    float64
		rails   int
		problem string
	}{
		{"two of three", []agentapi.HCA{rail("mlx5_0"), rail("mlx5_1"), rail("mlx5_2")}, []string{"mlx5_0", "mlx5_2"},
			false, 800, 2, ""},
		{"none is named", []agentapi.HCA{rail("mlx5_0")}, nil, false, 0, 0, ""},
		{"a switch's", []agentapi.HCA{rail("mlx5_0"), with(rail("mlx5_1"), func(h *agentapi.HCA) { h.NVSwitch = true })},
			[]string{"mlx5_0", "mlx5_1"}, false, 400, 1, "switches"},
		{"down", []agentapi.HCA{with(rail("mlx5_0"), func(h *agentapi.HCA) { h.State = "DOWN" })}, []string{"mlx5_0"},
			false, 0, 0, "DOWN"},
		{"RoCE", []agentapi.HCA{with(rail("mlx5_0"), func(h *agentapi.HCA) { h.LinkLayer = "Ethernet" })},
			[]string{"mlx5_0"}, false, 0, 0, "RoCE"},
		{"no verbs", []agentapi.HCA{with(rail("mlx5_0"), func(h *agentapi.HCA) { h.Verbs = "" })}, []string{"mlx5_0"},
			false, 0, 0, "ib_uverbs|no device node"},
		{"EFA", []agentapi.HCA{with(rail("rdmap0"), func(h *agentapi.HCA) { h.Driver, h.LinkLayer = "efa", "Unspecified" })},
			[]string{"rdmap0"}, false, 400, 1, ""},
		{"no such", []agentapi.HCA{rail("mlx5_0")}, []string{"mlx5_7"}, false, 0, 0, "no such"},
		{"memory cannot be locked", []agentapi.HCA{rail("mlx5_0")}, []string{"mlx5_0"}, true, 0, 0, "lock memory"},
	} {
		got, problems := hostinfo.Lend(tc.hcas, tc.named, !tc.locked)
		var r agentapi.RDMA
		if got != nil {
			r = *got
		}
		lent := 0
		for _, h := range tc.hcas {
			if h.Lent {
				lent++
			}
		}
		if r.Gbps != tc.want || r.Rails != tc.rails || lent != tc.rails || (r.Isolation != "") != (tc.rails > 0) {
			t.Errorf("%s: %+v, %d lent", tc.name, r, lent)
		}
		if (len(problems) > 0) != (tc.problem != "") {
			t.Errorf("%s: problems %+v", tc.name, problems)
			continue
		}
		for _, p := range problems {
			found := false
			for _, word := range strings.Split(tc.problem, "|") {
				found = found || strings.Contains(p.Evidence, word)
			}
			if !found || p.Severity != "warn" || p.Fix == "" {
				t.Errorf("%s: %+v", tc.name, p)
			}
		}
	}
}
