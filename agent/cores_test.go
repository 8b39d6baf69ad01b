package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/cores"
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
		t.Fatal("the status has no Cpus_allowed_list")
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

// recorded are the processors that are held for a run: nil when none were chosen.
func (h *host) recorded(ref agentapi.LeaseRef) *cores.Set {
	h.t.Helper()
	var rec struct{ Cores *cores.Set }
	b, err := os.ReadFile(filepath.Join(h.folder(ref), "lease.json"))
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return rec.Cores
}

// farHost has processors that this machine has not: Docker refuses them.
func farHost(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	h.stop()
	h.cores = cores.Map([]hostinfo.Node{{
		ID:       0,
		MemoryMB: 1 << 20,
		Cores:    [][]int{{900}, {901}, {902}, {903}},
	}}, []agentapi.GPU{{UUID: "GPU-0", PCIBus: "1"}, {UUID: "GPU-1", PCIBus: "2"}})
	h.start()
	return h
}

// A workload that Docker did not let have the processors near its GPUs runs on any, and holds none of those: neither
// when its agent notes what it has, nor when that agent dies before it does and another finds the workload.
func TestProcessorsThatDockerRefusedAreFree(t *testing.T) {
	t.Parallel()
	h := farHost(t)
	spec := h.spec("/job", "run")
	h.want(spec)
	h.await(spec.LeaseRef, "ready", ready)
	if got := h.recorded(spec.LeaseRef); got == nil || got.CPUs != "" {
		t.Errorf("held: %+v", got)
	}
	h.stop()
	h.edit(spec.LeaseRef, func(rec map[string]any) { // as before the note
		delete(rec, "work_id")
		rec["cores"] = map[string]any{"cpus": "900"}
	})
	h.start()
	h.want(spec)
	poll(t, "the note of what the workload has", func() bool {
		got := h.recorded(spec.LeaseRef)
		return got != nil && got.CPUs == ""
	})
}

// A workload that Docker refuses to make holds no processors.
func TestARefusedWorkloadHoldsNoProcessors(t *testing.T) {
	t.Parallel()
	h := farHost(t)
	spec := h.spec("/job", "run")
	spec.RAMMB = 1 // less than Docker allows
	h.want(spec)
	if st := h.await(spec.LeaseRef, "gone", gone); st.Reason != agentapi.ReasonRuntimeFailed {
		t.Errorf("%s", replies(st))
	}
	if got := h.recorded(spec.LeaseRef); got != nil {
		t.Errorf("held: %+v", got)
	}
}
