package cores_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

func uuid(i int) string { return fmt.Sprintf("GPU-%d", i) }

func dgx(t *testing.T) cores.Host {
	d := sysfstest.NewDGX(t)
	nodes, err := hostinfo.NUMA(d.Root)
	if err != nil {
		t.Fatal(err)
	}
	var gpus []agentapi.GPU
	for i, pci := range d.GPUs {
		gpus = append(gpus, agentapi.GPU{UUID: uuid(i), PCIBus: pci, NUMANode: agentapi.Known(d.NUMA[i])})
	}
	slices.Reverse(gpus) // however the driver lists them
	return cores.Map(nodes, gpus)
}

const part, ram = 28, 250_000 // what goes with one GPU of eight

func pick(t *testing.T, h cores.Host, taken []cores.Set, gpus ...int) cores.Set {
	t.Helper()
	var names []string
	for _, g := range gpus {
		names = append(names, uuid(g))
	}
	s, ok := h.Pick(names, float64(part*len(gpus)), int64(ram*len(gpus)), taken)
	if !ok {
		t.Fatalf("GPUs %v get none", gpus)
	}
	return s
}

func TestALeaseGetsTheCoresNearestToItsGPUs(t *testing.T) {
	t.Parallel()
	h := dgx(t)
	for _, c := range []struct {
		gpus []int
		want cores.Set
	}{
		{[]int{0}, cores.Set{CPUs: "0-13,112-125"}}, // whole cores: both threads
		{[]int{3}, cores.Set{CPUs: "42-55,154-167"}},
		{[]int{4}, cores.Set{CPUs: "56-69,168-181"}},
		{[]int{2, 3}, cores.Set{CPUs: "28-55,140-167"}},
		{[]int{3, 4}, cores.Set{CPUs: "42-69,154-181"}},                   // of both, half from each
		{[]int{4, 5, 6, 7}, cores.Set{CPUs: "56-111,168-223", Mems: "1"}}, // all that is near: its memory, too
		{[]int{0, 1, 2, 3, 4}, cores.Set{CPUs: "0-69,112-181"}},           // shares the second node with others
		{[]int{0, 1, 2}, cores.Set{CPUs: "0-41,112-153"}},
	} {
		if diff := cmp.Diff(c.want, pick(t, h, nil, c.gpus...)); diff != "" {
			t.Errorf("GPUs %v: %s", c.gpus, diff)
		}
	}
	if s, ok := h.Pick([]string{uuid(0), uuid(1), uuid(2), uuid(3)}, 112, 2<<20, nil); !ok || s.Mems != "" {
		t.Errorf("more memory than is near: %+v", s)
	}
}

// Leases come and go as they like: while each asks for no more than its GPUs' part, no two have a core in common.
func TestLeasesNeverShareACoreWhileTheirPartsAllowIt(t *testing.T) {
	t.Parallel()
	h := dgx(t)
	r := rand.New(rand.NewPCG(1, 2))
	leases := map[int]cores.Set{} // by the first GPU
	size := map[int]int{}
	free := func(g int) bool {
		for first, n := range size {
			if g >= first && g < first+n {
				return false
			}
		}
		return g < 8
	}
	for range 2000 {
		first, n := r.IntN(8), 1+r.IntN(4)
		if _, runs := leases[first]; runs {
			delete(leases, first)
			delete(size, first)
			continue
		}
		var gpus []int
		for g := first; g < first+n && free(g); g++ {
			gpus = append(gpus, g)
		}
		if len(gpus) == 0 {
			continue
		}
		var taken []cores.Set
		used := map[int]bool{}
		for _, s := range leases {
			taken = append(taken, s)
			list, _ := hostinfo.ParseList(s.CPUs)
			for _, c := range list {
				used[c%112] = true
			}
		}
		s := pick(t, h, taken, gpus...)
		list, err := hostinfo.ParseList(s.CPUs)
		if err != nil || len(list) != part*len(gpus) || s.Shared {
			t.Fatalf("GPUs %v beside %v: %+v, %v", gpus, leases, s, err)
		}
		for _, c := range list {
			if used[c%112] {
				t.Fatalf("GPUs %v share core %d with another lease", gpus, c%112)
			}
		}
		leases[first], size[first] = s, len(gpus)
	}
}

func TestWhatIsNotEnoughIsSharedAndSaysSo(t *testing.T) {
	t.Parallel()
	h := dgx(t)
	a, _ := h.Pick([]string{uuid(0)}, 200, ram, nil)
	b, ok := h.Pick([]string{uuid(7)}, 28, ram, []cores.Set{a})
	if !ok || !b.Shared {
		t.Errorf("%+v beside %+v", b, a)
	}
	left, _ := hostinfo.ParseList(b.CPUs)
	had, _ := hostinfo.ParseList(a.CPUs)
	own := 0
	for _, c := range left {
		if !slices.Contains(had, c) {
			own++
		}
	}
	if own != 24 { // all that the first has left
		t.Errorf("%d processors of its own", own)
	}
}

func TestWhatIsNotKnownGetsNoSet(t *testing.T) {
	t.Parallel()
	h := dgx(t)
	node := []hostinfo.Node{{ID: 0, Cores: [][]int{{0}, {1}, {2}}, MemoryMB: 1000}}
	two := []hostinfo.Node{{ID: 0, Cores: [][]int{{0}, {1}}}, {ID: 1, Cores: [][]int{{2}, {3}}}}
	for name, ask := range map[string]func() (cores.Set, bool){
		"nothing is known":      func() (cores.Set, bool) { return cores.Host{}.Pick([]string{uuid(0)}, 1, 1, nil) },
		"the whole host":        func() (cores.Set, bool) { return h.Pick([]string{uuid(0)}, 224, ram, nil) },
		"a GPU it does not see": func() (cores.Set, bool) { return h.Pick([]string{uuid(0), uuid(9)}, 28, ram, nil) },
		"a GPU without a place": func() (cores.Set, bool) {
			return cores.Map(two, []agentapi.GPU{{UUID: uuid(0)}, {UUID: uuid(1)}}).Pick([]string{uuid(0)}, 2, 1, nil)
		},
	} {
		if s, ok := ask(); ok {
			t.Errorf("%s: %+v", name, s)
		}
	}
	// One node: GPUs need no NUMA node. Three processors for two GPUs: the third belongs to neither.
	small := cores.Map(node, []agentapi.GPU{{UUID: uuid(0), PCIBus: "1"}, {UUID: uuid(1), PCIBus: "2"}})
	first, _ := small.Pick([]string{uuid(0)}, 1.5, 500, nil)
	second, _ := small.Pick([]string{uuid(1)}, 1.5, 500, []cores.Set{first})
	if want := (cores.Set{CPUs: "0,2"}); first != want {
		t.Errorf("%+v", first)
	}
	if want := (cores.Set{CPUs: "1-2", Shared: true}); second != want {
		t.Errorf("%+v", second)
	}
}
