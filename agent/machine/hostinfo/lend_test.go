package hostinfo_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/internal/agentapi"
)

// Only ports that the operator names are lent, and of those only ones that can work and belong to no switch.
func TestLend(t *testing.T) {
	t.Parallel()
	rail := func(device string) agentapi.HCA {
		return agentapi.HCA{Device: device, Port: 1, Driver: "mlx5_core", LinkLayer: "InfiniBand", State: "ACTIVE",
			Gbps: 400, Verbs: "uverbs0"}
	}
	fine, never := hostinfo.Verbs{Lockable: true}, hostinfo.Verbs{}
	roce := func(device string) agentapi.HCA {
		return agentapi.HCA{Device: device, Port: 1, Driver: "mlx5_core", LinkLayer: "Ethernet", State: "ACTIVE",
			Gbps: 200, Verbs: "uverbs0", Netdev: "ens1", GIDIndex: agentapi.Known(3)}
	}
	with := func(h agentapi.HCA, change func(*agentapi.HCA)) agentapi.HCA { change(&h); return h }
	for _, tc := range []struct {
		name    string
		hcas    []agentapi.HCA
		named   []string
		verbs   hostinfo.Verbs
		want    float64
		rails   int
		problem string
	}{
		{"two of three", []agentapi.HCA{rail("mlx5_0"), rail("mlx5_1"), rail("mlx5_2")}, []string{"mlx5_0", "mlx5_2"},
			fine, 800, 2, ""},
		{"none is named", []agentapi.HCA{rail("mlx5_0")}, nil, fine, 0, 0, ""},
		{"a switch's", []agentapi.HCA{rail("mlx5_0"), with(rail("mlx5_1"), func(h *agentapi.HCA) { h.NVSwitch = true })},
			[]string{"mlx5_0", "mlx5_1"}, fine, 400, 1, "switches"},
		{"down", []agentapi.HCA{with(rail("mlx5_0"), func(h *agentapi.HCA) { h.State = "DOWN" })}, []string{"mlx5_0"},
			fine, 0, 0, "DOWN"},
		{"RoCE without an address", []agentapi.HCA{with(rail("mlx5_0"), func(h *agentapi.HCA) { h.LinkLayer = "Ethernet" })},
			[]string{"mlx5_0"}, fine, 0, 0, "no address of RoCE v2"},
		{"RoCE with an address", []agentapi.HCA{roce("mlx5_0")}, []string{"mlx5_0"}, fine, 200, 1, ""},
		{"RoCE of MLNX_OFED", []agentapi.HCA{roce("mlx5_0")}, []string{"mlx5_0"}, hostinfo.Verbs{Lockable: true, OFED: true},
			0, 0, "MLNX_OFED"},
		{"InfiniBand of MLNX_OFED", []agentapi.HCA{rail("mlx5_0")}, []string{"mlx5_0"},
			hostinfo.Verbs{Lockable: true, OFED: true}, 400, 1, ""},
		{"InfiniBand and RoCE", []agentapi.HCA{rail("mlx5_0"), roce("mlx5_1")}, []string{"mlx5_0", "mlx5_1"}, fine, 400, 1,
			"another kind"},
		{"one namespace only", []agentapi.HCA{rail("mlx5_0")}, []string{"mlx5_0"},
			hostinfo.Verbs{Lockable: true, Exclusive: true}, 0, 0, "network namespace only"},
		{"no verbs", []agentapi.HCA{with(rail("mlx5_0"), func(h *agentapi.HCA) { h.Verbs = "" })}, []string{"mlx5_0"},
			fine, 0, 0, "ib_uverbs|no device node"},
		{"EFA", []agentapi.HCA{with(rail("rdmap0"), func(h *agentapi.HCA) { h.Driver, h.LinkLayer = "efa", "Unspecified" })},
			[]string{"rdmap0"}, fine, 400, 1, ""},
		{"no such", []agentapi.HCA{rail("mlx5_0")}, []string{"mlx5_7"}, fine, 0, 0, "no such"},
		{"memory cannot be locked", []agentapi.HCA{rail("mlx5_0")}, []string{"mlx5_0"}, never, 0, 0, "lock memory"},
	} {
		got, problems := hostinfo.Lend(tc.hcas, tc.named, tc.verbs, false)
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
		if r.Gbps != tc.want || r.Rails != tc.rails || lent != tc.rails || (r.Isolation != "") != (tc.rails > 0) ||
			(r.Link != "") != (tc.rails > 0) {
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

// What the kernel says of namespaces and whose modules it runs.
func TestVerbs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  hostinfo.Verbs
	}{
		{"shared", map[string]string{"module/ib_core/parameters/netns_mode": "Y\n"}, hostinfo.Verbs{}},
		{"exclusive", map[string]string{"module/ib_core/parameters/netns_mode": "N\n"}, hostinfo.Verbs{Exclusive: true}},
		{"before Linux 5.3", nil, hostinfo.Verbs{}},
		{"MLNX_OFED", map[string]string{"module/mlx_compat/version": "23.10\n"}, hostinfo.Verbs{OFED: true}},
	} {
		root := t.TempDir()
		for name, content := range tc.files {
			sysfstest.Write(t, root, name, content)
		}
		got := hostinfo.ReadVerbs(root)
		got.Lockable = false // this process's own
		if got != tc.want {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}
