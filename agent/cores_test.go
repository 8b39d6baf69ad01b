package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/cores"
	"github.com/musterhq/muster/agent/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Two leases on a host's two GPUs run on the processors that are at home with theirs, which an agent that was started
// again between them has not forgotten, though it lists the GPUs in another order.
func TestLeasesRunOnTheCoresNearTheirGPUs(t *testing.T) {
	t.Parallel()
	nodes := []hostinfo.Node{{ID: 0, MemoryMB: 1 << 20}}
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if mine.IsSet(cpu) {
			nodes[0].Cores = append(nodes[0].Cores, []int{cpu})
		}
	}
	at := func(first, second string) cores.Host {
		return cores.Map(nodes, []agentapi.GPU{{UUID: first, PCIBus: "1"}, {UUID: second, PCIBus: "2"}})
	}
	h := newHost(t)
	h.stop()
	h.cores = at("GPU-0", "GPU-1")
	h.start()
	a := h.spec("/job", "run")
	b := h.spec("/job", "run")
	b.GPUs = []string{"GPU-1"}
	a.CPUs, b.CPUs = 1, 1
	want := h.cores
	setA, _ := want.Pick(a.GPUs, 1, a.RAMMB, nil)
	setB, _ := want.Pick(b.GPUs, 1, b.RAMMB, []cores.Set{setA})
	if len(nodes[0].Cores) > 1 && (setA.CPUs == "" || setA.CPUs == setB.CPUs) {
		t.Fatalf("%+v and %+v", setA, setB)
	}
	on := func(spec agentapi.LeaseSpec) string {
		c, err := h.engine.Inspect(t.Context(), spec.LeaseRef, container.Work)
		if err != nil || c.PID == 0 {
			t.Fatalf("%+v, %v", c, err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				return strings.TrimSpace(list)
			}
		}
		t.Fatal("its processors are not told")
		return ""
	}
	check := func(spec agentapi.LeaseSpec, set cores.Set) {
		t.Helper()
		if got := on(spec); set.CPUs != "" && got != set.CPUs {
			t.Errorf("%v runs on %s, want %s", spec.GPUs, got, set.CPUs)
		}
	}
	h.want(a)
	h.await(a.LeaseRef, "ready", ready)
	h.stop()
	h.cores = at("GPU-1", "GPU-0") // the other way round: the first GPU's home is the first lease's
	h.start()
	h.want(a, b)
	h.await(b.LeaseRef, "ready", ready)
	check(a, setA)
	check(b, setB)
}
