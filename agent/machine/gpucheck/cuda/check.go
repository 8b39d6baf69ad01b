package cuda

import (
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

//go:embed kernels.ptx
var ptx string

// Numbers of the check.
const (
	threads = 256 // per block
	perSM   = 8   // blocks per multiprocessor
	chains  = 4   // of multiply-adds per thread and round of the kernel work
	// slowest is the part of its peak that a sound GPU reaches at least, with a low power limit too. A GPU whose clock is
	// held down by a fault of its power or cooling is far below.
	slowest  = 0.15
	patience = 5 // times the usual time for a GPU that looks slow
	// launch is how long one launch may take: a display's watchdog ends kernels after seconds.
	launch = 200 * time.Millisecond
)

// card is one GPU under check.
type card struct {
	gpucheck.GPU
	device  device
	context context
	sms     int
	fill    kernel
	work    kernel
	// from and to are what the measurement with NCCL adds up, and the sums.
	from, to pointer
}

// checker runs one check.
type checker struct {
	want   []string // UUIDs
	work   time.Duration
	words  int        // of 32 bits, copied to each GPU and back; between two GPUs, a quarter
	ring   bool       // measure how fast GPUs send to each other
	mu     sync.Mutex // held while a line is written
	report func(gpucheck.Line)
}

func (c *checker) step(gpu, step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report(gpucheck.Line{GPU: gpu, Step: step})
}

// run checks all GPUs. The library has been opened.
func (c *checker) run() (res gpucheck.Result) {
	c.step("", "cuInit")
	if err := initialise(); err != nil {
		res.Failure = err.failure("start of CUDA")
		return res
	}
	c.step("", "list of devices")
	cards, failure := c.list()
	if res.CUDA, _ = version(); failure != nil {
		res.Failure = failure
		return res
	}
	c.step("", "")
	failures := make([]*gpucheck.Failure, len(cards))
	var wg sync.WaitGroup
	for i, g := range cards {
		wg.Go(func() {
			runtime.LockOSThread() // a context belongs to a thread
			defer runtime.UnlockOSThread()
			failures[i] = c.one(g)
			c.step(g.UUID, "")
		})
	}
	wg.Wait()
	failed := func(f *gpucheck.Failure) bool { return f != nil }
	if i := slices.IndexFunc(failures, failed); i >= 0 {
		res.Failure = failures[i]
	} else {
		res.Failure = c.peers(cards)
	}
	if c.ring && res.Failure == nil {
		res.Failure = c.rings(cards)
	}
	for _, g := range cards {
		res.GPUs = append(res.GPUs, g.GPU)
	}
	return res
}

// asWanted returns the name under which a device is wanted: CUDA reports a MIG device's UUID without its prefix.
func (c *checker) asWanted(uuid string) string {
	if slice := "MIG-" + strings.TrimPrefix(uuid, "GPU-"); slices.Contains(c.want, slice) {
		return slice
	}
	return uuid
}

// list finds the devices: exactly those that are wanted.
func (c *checker) list() ([]*card, *gpucheck.Failure) {
	const step = "list of devices"
	all, err := devices()
	if err != nil {
		return nil, err.failure(step)
	}
	var cards []*card
	var found []string
	for _, d := range all {
		g := &card{device: d}
		if g.UUID, err = uuidOf(d); err == nil {
			g.Name, err = nameOf(d)
		}
		if err != nil {
			return nil, err.failure(step)
		}
		g.UUID = c.asWanted(g.UUID)
		cards, found = append(cards, g), append(found, g.UUID)
	}
	only := func(in, notIn []string) (out []string) {
		for _, u := range in {
			if !slices.Contains(notIn, u) {
				out = append(out, u)
			}
		}
		return out
	}
	if missing := only(c.want, found); len(missing) > 0 || len(found) == 0 {
		return nil, &gpucheck.Failure{Kind: gpucheck.KindMissing, GPUs: missing, Step: step,
			Text: fmt.Sprintf("CUDA has %d devices, not these", len(found))}
	}
	if extra := only(found, c.want); len(extra) > 0 && len(c.want) > 0 {
		return nil, &gpucheck.Failure{Kind: gpucheck.KindExtra, GPUs: extra, Step: step,
			Text: "CUDA has devices here that are not the workload's"}
	}
	return cards, nil
}

// one checks one GPU by itself. The calling goroutine keeps its thread.
func (c *checker) one(g *card) *gpucheck.Failure {
	for _, s := range []struct {
		name string
		do   func(*card) (*callError, *gpucheck.Failure)
	}{
		{"attributes", c.attributes}, {"context", c.createContext}, {"memory", c.memory}, {"kernels", c.compile},
		{"arithmetic", c.arithmetic},
	} {
		c.step(g.UUID, s.name)
		err, failure := s.do(g)
		if err != nil {
			failure = err.failure(s.name, g.UUID)
		}
		if failure != nil {
			failure.GPUs, failure.Step = []string{g.UUID}, s.name
			return failure
		}
	}
	return nil
}

func (c *checker) attributes(g *card) (*callError, *gpucheck.Failure) {
	var values [5]int
	for i, a := range []attr{attrMajor, attrMinor, attrSMs, attrClockKHz, attrWatchdog} {
		var err *callError
		if values[i], err = attribute(g.device, a); err != nil {
			return err, nil
		}
	}
	g.ComputeCap = fmt.Sprintf("%d.%d", values[0], values[1])
	g.sms, g.Watchdog = values[2], values[4] != 0
	g.PeakTFLOPS = 2 * float64(lanes(values[0], values[1])) * float64(g.sms) * float64(values[3]) * 1e3 / 1e12
	return nil, nil
}

// lanes returns how many 32-bit multiply-adds a multiprocessor starts per clock at most. Source: CUDA C++ Programming
// Guide, "Throughput of Native Arithmetic Instructions". An H200 (9.0) reached 58 % of what follows from it.
func lanes(major, minor int) int {
	switch {
	case major == 6 && minor == 0, major == 7, major == 8 && minor == 0: // P100, V100 and T4, A100
		return 64
	}
	return 128
}

func (c *checker) createContext(g *card) (err *callError, _ *gpucheck.Failure) {
	g.context, err = createContext(g.device)
	return err, nil
}

// memory copies random words to the GPU and back.
func (c *checker) memory(g *card) (*callError, *gpucheck.Failure) {
	words, back := make([]uint32, c.words), make([]uint32, c.words)
	x := uint32(2463534242)
	for i := range words { // xorshift
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		words[i] = x
	}
	p, err := alloc(4 * c.words)
	if err != nil {
		return err, nil
	}
	began := time.Now()
	if err := toGPU(p, words); err != nil {
		return err, nil
	}
	g.ToGBps = rate(4*c.words, time.Since(began))
	began = time.Now()
	if err := fromGPU(back, p); err != nil {
		return err, nil
	}
	g.FromGBps = rate(4*c.words, time.Since(began))
	if i := firstDifference(words, back); i >= 0 {
		return nil, wrong("word %d of %d was written as %08x and read as %08x", i, c.words, words[i], back[i])
	}
	return free(p), nil
}

// compile compiles the kernels and lets one fill memory.
func (c *checker) compile(g *card) (err *callError, _ *gpucheck.Failure) {
	if g.fill, g.work, err = kernels(); err != nil {
		return err, nil
	}
	const count, seed = 1 << 20, 0x9e3779b9
	p, err := alloc(4 * count)
	if err != nil {
		return err, nil
	}
	if err := launchFill(g.fill, p, count, seed); err != nil {
		return err, nil
	}
	if err := synchronize(); err != nil {
		return err, nil
	}
	back := make([]uint32, count)
	if err := fromGPU(back, p); err != nil {
		return err, nil
	}
	for i, got := range back {
		if want := filled(i, seed); got != want {
			return nil, wrong("the GPU wrote %08x instead of %08x", got, want)
		}
	}
	return free(p), nil
}

// arithmetic computes for a while on all multiprocessors, and compares every result.
func (c *checker) arithmetic(g *card) (*callError, *gpucheck.Failure) {
	blocks := perSM * max(1, g.sms)
	n := blocks * threads
	p, err := alloc(8 * n)
	if err != nil {
		return err, nil
	}
	out := make([]uint32, 2*n)
	var busy time.Duration
	// A GPU that looks slow gets more time: a busy host may have delayed the launches.
	for rounds := uint32(1024); busy < c.work || g.TFLOPS < slowest*g.PeakTFLOPS && busy < patience*c.work; {
		began := time.Now()
		if err := launchWork(g.work, p, blocks, rounds); err != nil {
			return err, nil
		}
		if err := synchronize(); err != nil {
			return err, nil
		}
		took := time.Since(began)
		if err := fromGPU(out, p); err != nil {
			return err, nil
		}
		if f := compare(out, rounds); f != nil {
			return nil, f
		}
		busy += took
		flop := 2 * chains * float64(rounds) * float64(n)
		if took < launch/2 && rounds < 1<<24 {
			rounds *= 2
		}
		g.TFLOPS = max(g.TFLOPS, flop/took.Seconds()/1e12)
	}
	if g.TFLOPS < slowest*g.PeakTFLOPS {
		return nil, &gpucheck.Failure{Kind: gpucheck.KindSlow, Text: fmt.Sprintf(
			"%.2f TFLOPS of at most %.2f: its clock is held down, or something else computes on it", g.TFLOPS, g.PeakTFLOPS)}
	}
	return free(p), nil
}

// compare checks the results of the kernel work: the integers against their formula, the floats, which are equal for
// threads with equal low bits, against each other.
func compare(out []uint32, rounds uint32) *gpucheck.Failure {
	a, b := uint32(1), uint32(0) // x after the rounds is a*x + b
	ta, tb := uint32(1664525), uint32(1013904223)
	for r := rounds; r > 0; r >>= 1 {
		if r&1 == 1 {
			a, b = a*ta, b*ta+tb
		}
		ta, tb = ta*ta, tb*ta+tb
	}
	for i := 0; i < len(out); i += 2 {
		low := uint32(i/2) & 255
		if want := a*low + b; out[i] != want {
			return wrong("thread %d computed %08x instead of %08x", i/2, out[i], want)
		}
		if want := out[2*low+1]; out[i+1] != want {
			return wrong("thread %d computed %08x, thread %d %08x from the same numbers", i/2, out[i+1], low, want)
		}
	}
	return nil
}

// filled is word i of what the kernel fill writes.
func filled(i int, seed uint32) uint32 { return (uint32(i) ^ seed) * 2654435761 }

// arrived compares words that were copied to another GPU with what the kernel fill wrote; nil if they are the same.
func arrived(words []uint32, seed uint32) *gpucheck.Failure {
	for i, got := range words {
		if want := filled(i, seed); got != want {
			return wrong("word %d arrived as %08x instead of %08x", i, got, want)
		}
	}
	return nil
}

func wrong(format string, args ...any) *gpucheck.Failure {
	return &gpucheck.Failure{Kind: gpucheck.KindWrong, Text: fmt.Sprintf(format, args...)}
}

func firstDifference(a, b []uint32) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func rate(bytes int, took time.Duration) float64 {
	return float64(bytes) / max(took.Seconds(), 1e-9) / 1e9
}
