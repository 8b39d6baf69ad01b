package demand

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func gpus(n int) []int64 { return slices.Repeat([]int64{Whole}, n) }

func whole(n int, cpu int64) Request { return Request{CPU: cpu, GPUs: n, Milli: Whole} }

func kinds(parts map[Request]float64) []Kind {
	var out []Kind
	for r, p := range parts {
		out = append(out, Kind{r, p})
	}
	slices.SortFunc(out, func(a, b Kind) int { return int(a.CPU-b.CPU) + 1000*(a.GPUs-b.GPUs) })
	return out
}

func mustPlace(t *testing.T, f *Fleet, r Request) int {
	t.Helper()
	h, ok := f.Place(r)
	if !ok {
		t.Fatalf("%+v fits nowhere", r)
	}
	return h
}

func TestSmallRequestsLeaveWholeHostsToLargeOnes(t *testing.T) {
	t.Parallel()
	f := NewFleet(kinds(map[Request]float64{whole(1, 0): 0.8, whole(8, 0): 0.2}))
	for i := range 4 {
		f.Add(i, "X", 0, 0, gpus(8))
	}
	f.Add(4, "X", 0, 0, gpus(5))
	for range 5 {
		if h := mustPlace(t, f, whole(1, 0)); h != 4 {
			t.Fatalf("one GPU from host %d, want the broken one", h)
		}
	}
	mustPlace(t, f, whole(1, 0))
	for range 3 {
		mustPlace(t, f, whole(8, 0))
	}
}

func TestRequestsGoWhereTheirProcessorsAre(t *testing.T) {
	t.Parallel()
	f := NewFleet(kinds(map[Request]float64{whole(1, 4): 0.5, whole(1, 20): 0.5}))
	for i := range 8 {
		f.Add(i, "X", 16, 0, gpus(4))   // four processors per GPU
		f.Add(8+i, "X", 80, 0, gpus(4)) // twenty
	}
	for range 32 {
		if h := mustPlace(t, f, whole(1, 20)); h < 8 {
			t.Fatal("a request for many processors is where few are")
		}
		if h := mustPlace(t, f, whole(1, 4)); h >= 8 {
			t.Fatal("a request for few processors is where many are")
		}
	}
	if f.Free() != 0 {
		t.Errorf("%d thousandths are left", f.Free())
	}
}

func TestWhoeverMayGoAnywhereLeavesModelsThatOthersInsistOn(t *testing.T) {
	t.Parallel()
	choosy := Request{GPUs: 1, Milli: Whole, Models: "A"}
	f := NewFleet(kinds(map[Request]float64{whole(1, 0): 0.5, choosy: 0.5}))
	for i := range 10 {
		f.Add(i, "A", 0, 0, gpus(4))
		f.Add(10+i, "B", 0, 0, gpus(4))
	}
	for range 40 {
		mustPlace(t, f, whole(1, 0))
		mustPlace(t, f, choosy)
	}
}

func TestPartsOfGPUsArePacked(t *testing.T) {
	t.Parallel()
	part := func(m int64) Request { return Request{GPUs: 1, Milli: m} }
	f := NewFleet(kinds(map[Request]float64{part(700): 0.3, part(300): 0.4, whole(1, 0): 0.3}))
	for i := range 3 {
		f.Add(i, "X", 0, 0, gpus(1))
	}
	first := mustPlace(t, f, part(700))
	if h := mustPlace(t, f, part(300)); h != first {
		t.Errorf("300 beside nothing on host %d, want beside 700 on %d", h, first)
	}
	mustPlace(t, f, whole(1, 0))
	mustPlace(t, f, whole(1, 0))
}

// TestNothingIsGivenTwice keeps its own books of a random fleet under random requests.
func TestNothingIsGivenTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		demand := make([]Kind, 12)
		for i := range demand {
			q := Request{CPU: int64(r.IntN(20)), Mem: int64(r.IntN(50)), Models: []string{"", "", "A", "A|B"}[r.IntN(4)]}
			switch r.IntN(4) {
			case 0:
				q.Models = ""
			case 1:
				q.GPUs, q.Milli = 1, int64(100+r.IntN(900))
			default:
				q.GPUs, q.Milli = 1<<r.IntN(4), Whole
			}
			demand[i] = Kind{q, 1.0 / 12}
		}
		f := NewFleet(demand)
		f.Look = 8 * int(seed%2)
		type left struct{ cpu, mem, gpu int64 }
		books := make([]left, 40)
		models := make([]string, 40)
		var free int64
		for i := range books {
			n := 1 + r.IntN(8)
			books[i] = left{int64(10 * n), int64(30 * n), int64(n) * Whole}
			models[i] = []string{"A", "B", "C"}[r.IntN(3)]
			f.Add(i, models[i], books[i].cpu, books[i].mem, gpus(n))
			free += books[i].gpu
		}
		for range 600 {
			q := demand[r.IntN(12)].Request
			h, ok := f.Place(q)
			if !ok {
				continue
			}
			b := &books[h]
			b.cpu, b.mem, b.gpu = b.cpu-q.CPU, b.mem-q.Mem, b.gpu-q.GPU()
			free -= q.GPU()
			if b.cpu < 0 || b.mem < 0 || b.gpu < 0 || !q.allows(models[h]) {
				t.Fatalf("seed %d: host %d (%s) has %+v left after %+v", seed, h, models[h], *b, q)
			}
		}
		if f.Free() != free {
			t.Fatalf("seed %d: the fleet has %d left, the books %d", seed, f.Free(), free)
		}
	}
}

func TestTheSameFleetAndDemandGiveTheSamePlacements(t *testing.T) {
	t.Parallel()
	run := func() string {
		f := NewFleet(kinds(map[Request]float64{whole(1, 3): 0.6, whole(2, 9): 0.3, whole(4, 10): 0.1}))
		f.Look = 4
		for i := range 30 {
			f.Add(i, fmt.Sprint(i%3), int64(20+i), 0, gpus(4))
		}
		out := ""
		r := rand.New(rand.NewPCG(1, 1))
		for range 100 {
			h, ok := f.Place([]Request{whole(1, 3), whole(2, 9), whole(4, 10)}[r.IntN(3)])
			out += fmt.Sprint(h, ok, " ")
		}
		return out
	}
	if a, b := run(), run(); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestWithoutADemandAnythingGoes(t *testing.T) {
	t.Parallel()
	f := NewFleet(nil)
	f.Add(1, "X", 1, 1, gpus(1))
	if h := mustPlace(t, f, whole(1, 1)); h != 1 {
		t.Error(h)
	}
	if _, ok := f.Place(whole(1, 0)); ok {
		t.Error("placed on a full fleet")
	}
}
