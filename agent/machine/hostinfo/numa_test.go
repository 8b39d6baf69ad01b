package hostinfo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/internal/agentapi"
)

func TestNUMA(t *testing.T) {
	t.Parallel()
	d := sysfstest.NewDGX(t)
	nodes, err := hostinfo.NUMA(d.Root)
	if err != nil {
		t.Fatal(err)
	}
	want := []agentapi.NUMANode{{Node: 0, CPUs: "0-55,112-167", MemoryMB: 1031796, Distances: []int{10, 21}},
		{Node: 1, CPUs: "56-111,168-223", MemoryMB: 1031796, Distances: []int{21, 10}}}
	if diff := cmp.Diff(want, hostinfo.Nodes(nodes)); diff != "" {
		t.Error(diff)
	}
	if len(nodes[1].Cores) != 56 || !cmp.Equal(nodes[1].Cores[3], []int{59, 171}) {
		t.Errorf("cores: %v", nodes[1].Cores)
	}
	// Switched-off processors are not there, whatever their node says; one thread left is a core.
	sysfstest.Write(t, d.Root, "devices/system/cpu/online", "0-55,57-111,113-223\n")
	if nodes, err = hostinfo.NUMA(d.Root); err != nil || nodes[1].CPUs()[0] != 57 ||
		!cmp.Equal(nodes[0].Cores[0], []int{0}) {
		t.Errorf("with two processors off: %v, %v", nodes, err)
	}
	if _, err := hostinfo.NUMA(t.TempDir()); err == nil {
		t.Error("NUMA returns nodes although the kernel lists none")
	}
	if nodes, err := hostinfo.NUMA(""); err == nil && (len(nodes) == 0 || len(nodes[0].Cores) == 0 ||
		nodes[0].MemoryMB == 0) {
		t.Errorf("this machine: %+v", nodes)
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8-11", "3,1", "1-0", "-1", "0-999999999", "a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := hostinfo.ParseList(s)
		if err != nil {
			return
		}
		again, err := hostinfo.ParseList(hostinfo.FormatList(list))
		if err != nil || !cmp.Equal(list, again) {
			t.Errorf("%q: %v, then %v, %v", s, list, again, err)
		}
	})
}
