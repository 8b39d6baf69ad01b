// Package gpucheck proves that a workload can compute on its GPUs. NVML, which the agent uses for everything else, is
// content while CUDA is dead: without the fabric manager of an NVSwitch system, with a driver that was upgraded under
// its loaded module, without /dev/nvidia-uvm. So a program (agent/machine/gpucheck/cuda, the command
// "muster-agent gpucheck") runs where the workload will run, with the workload's devices and rights, before the barrier
// and so before anything is billed.
//
// This package is what the program's callers use: the workload's init, which is static and has no C library, and the
// agent. Invariant: a check always ends, also if the driver does not answer: it is killed after its limit, and the
// failure names the step of each GPU that was not done.
package gpucheck

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Dir is where the program, the host's loader and its C library are mounted in a container, read-only.
const Dir = "/run/muster/gpucheck"

// Names within Dir. A Library exists only where the GPUs are simulated.
const (
	programFile = "muster-agent"
	loaderFile  = "ld.so"
	libraryFile = "libcuda.so.1"
	ncclFile    = "libnccl.so.2"
)

// Kinds of failures.
const (
	KindCUDA    = "cuda"       // a call of CUDA's failed
	KindMissing = "missing"    // a GPU of the workload's, or the library, is not there
	KindExtra   = "extra"      // there is a GPU that is not the workload's
	KindWrong   = "wrong_data" // memory or arithmetic gave another value than it should
	KindSlow    = "slow"       // far below what the GPU is made for
	KindHang    = "hang"       // a step did not end
	KindCrash   = "crash"      // the driver's library ended the program
)

// Steps that send from one GPU to another.
const (
	StepCopy  = "copy between GPUs"
	StepWrite = "kernel's write to another GPU"
	StepRing  = "ring of copies"
)

// Failure is why a workload cannot compute on its GPUs.
type Failure struct {
	Kind string   `json:"kind"`
	GPUs []string `json:"gpus,omitempty"` // UUIDs; none: the driver as a whole
	Step string   `json:"step,omitempty"`
	Call string   `json:"call,omitempty"` // CUDA's function
	Code int      `json:"code,omitempty"` // CUDA's CUresult
	Text string   `json:"text"`           // CUDA's name and description of the code, or what was found
}

// Error is the failure for people: which GPU, in CUDA's words.
func (f *Failure) Error() string {
	var b strings.Builder
	b.WriteString("the check of the GPUs failed")
	if len(f.GPUs) > 0 {
		b.WriteString(" on " + strings.Join(f.GPUs, ", "))
	}
	if f.Step != "" {
		b.WriteString(" at " + f.Step)
	}
	b.WriteString(": ")
	if f.Call != "" {
		fmt.Fprintf(&b, "%s: ", f.Call)
	}
	b.WriteString(f.Text)
	if f.Kind == KindCUDA {
		fmt.Fprintf(&b, " (CUDA error %d)", f.Code)
	}
	return b.String()
}

// Result is what a check has found out. Figures are of a few seconds: they distinguish a broken GPU from a sound one,
// and are no benchmark.
type Result struct {
	CUDA    int      `json:"cuda,omitempty"`    // cuDriverGetVersion: 12040 is 12.4
	Library string   `json:"library,omitempty"` // path of libcuda
	GPUs    []GPU    `json:"gpus,omitempty"`
	Opened  []string `json:"opened,omitempty"` // device nodes that were opened, where nothing was computed: AMD's GPUs
	Failure *Failure `json:"failure,omitempty"`
	TookMS  int64    `json:"took_ms"`
	Calls   []Call   `json:"calls,omitempty"` // of CUDA, if they were to be recorded

	reduce *agentapi.NCCL // what was measured with NCCL instead
}

// Call is how often a function of CUDA returned a code.
type Call struct {
	Call  string `json:"call"`
	Code  int    `json:"code"` // CUresult
	Times int    `json:"times"`
}

// GPU is the part of a Result about one GPU.
type GPU struct {
	UUID       string  `json:"uuid"`
	Name       string  `json:"name"`
	ComputeCap string  `json:"compute_cap"`
	ToGBps     float64 `json:"to_gbps"`     // host memory to GPU, 10⁹ bytes a second, pageable
	FromGBps   float64 `json:"from_gbps"`   // GPU to host memory
	TFLOPS     float64 `json:"tflops"`      // 32-bit multiply-adds
	PeakTFLOPS float64 `json:"peak_tflops"` // at most, by the clock and number of its multiprocessors
	// Watchdog: the driver ends kernels that run for seconds, because a display uses the GPU.
	Watchdog bool     `json:"watchdog,omitempty"`
	Peers    []string `json:"peers,omitempty"` // UUIDs that it can address directly
	// RingGbps is what it sent to the GPU Next while each GPU of its model sent to its next one, in Gbit/s; 0: that was
	// not measured, because there is one GPU of the model, or no ring of direct access.
	RingGbps float64 `json:"ring_gbps,omitempty"`
	Next     string  `json:"next,omitempty"`
}

// Line is one line of the program's output: progress, or at last the result.
type Line struct {
	GPU    string         `json:"gpu,omitempty"`
	Step   string         `json:"step,omitempty"` // "" with a GPU: it is done
	Result *Result        `json:"result,omitempty"`
	Reduce *agentapi.NCCL `json:"reduce,omitempty"` // of the measurement with NCCL
}

// ErrKilled is returned if something else than this package killed the program: most likely the kernel, because the
// container's memory is too small. It proves nothing about the GPUs.
var ErrKilled = errors.New("the check of the GPUs was killed, probably for lack of memory: nothing is known")

// Check configures one run of the program.
type Check struct {
	Command []string      // program and first arguments
	GPUs    []string      // UUIDs that must be there, and no others; none: whatever is there
	Limit   time.Duration // 0 = DefaultLimit
	grace   time.Duration // tests'; 0 = five seconds
	env     []string      // more variables of the program
	other   func(string)  // gets the lines of its output that are not its own; nil: they are dropped
}

// DefaultLimit is how long a check may take. The first use of eight GPUs without the persistence daemon takes about a
// minute.
const DefaultLimit = 3 * time.Minute

// InContainer returns the command line of the check in a container where Dir is mounted. Simulated GPUs are this
// machine's processor and memory, of which many nodes are started at a time: less of them shows as much.
func InContainer(simulated bool) []string {
	args := []string{Dir + "/" + loaderFile, "--library-path", Dir, Dir + "/" + programFile, "gpucheck"}
	if simulated {
		args = append(args, "--library", Dir+"/"+libraryFile, "--work", "500ms", "--memory", "4")
	}
	return args
}

// Run runs the program and returns what it found, which may be a Failure. An error means that nothing is known: the
// program could not be started, or was killed.
func (c Check) Run(ctx context.Context) (Result, error) {
	limit, grace := c.Limit, c.grace
	if limit == 0 {
		limit = DefaultLimit
	}
	if grace == 0 {
		grace = 5 * time.Second
	}
	args := slices.Clone(c.Command[1:])
	if len(c.GPUs) > 0 {
		args = append(args, "--gpus", strings.Join(c.GPUs, ","))
	}
	cmd := exec.Command(c.Command[0], args...)
	// Nothing of the image's environment: LD_PRELOAD, CUDA_VISIBLE_DEVICES and the like would decide what is checked.
	cmd.Env = append([]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_CACHE_DISABLE=1"}, ownEnv()...)
	cmd.Env = append(cmd.Env, c.env...)
	// The child is killed when the thread that started it ends, not only when the process does: the thread is kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	var words tail
	cmd.Stderr = &words
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("start the check of the GPUs: %w", err)
	}
	p := progress{other: c.other}
	done := make(chan error, 1)
	go func() {
		p.read(out)
		done <- cmd.Wait()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err = <-done:
	case <-ctx.Done():
		kill(cmd, done, grace)
		return Result{}, ctx.Err()
	case <-timer.C:
		kill(cmd, done, grace) // a process that waits in the driver may not end; it is left behind
		res := p.hung(c.GPUs, limit, time.Since(began))
		res.Failure.Explain("/sys")
		return res, nil
	}
	res := p.result()
	var exit *exec.ExitError
	switch {
	case res != nil:
		res.Failure.Explain("/sys")
		return *res, nil
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return Result{}, ErrKilled
	}
	f := p.unfinished(KindCrash)
	f.Text = strings.TrimSpace(fmt.Sprintf("the program ended early (%v) %s", err, words.String()))
	return Result{Failure: f, TookMS: time.Since(began).Milliseconds()}, nil
}

// kill ends the program, and waits for its end for a moment.
func kill(cmd *exec.Cmd, done <-chan error, grace time.Duration) {
	_ = cmd.Process.Kill()
	select {
	case <-done:
	case <-time.After(grace):
	}
}

// progress is what the program has written so far.
type progress struct {
	mu    sync.Mutex
	other func(string)
	steps map[string]string // by GPU; "" is the driver as a whole
	res   *Result
}

func (p *progress) read(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l Line
		if json.Unmarshal(s.Bytes(), &l) != nil {
			if p.other != nil {
				p.other(s.Text())
			}
			continue
		}
		p.mu.Lock()
		switch {
		case l.Result != nil:
			p.res = l.Result
		case l.Reduce != nil:
			p.res = &Result{reduce: l.Reduce}
		case l.Step == "":
			delete(p.steps, l.GPU)
		default:
			if p.steps == nil {
				p.steps = map[string]string{}
			}
			p.steps[l.GPU] = l.Step
		}
		p.mu.Unlock()
	}
}

func (p *progress) result() *Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.res
}

// unfinished is a failure of the steps that had begun and not ended.
func (p *progress) unfinished(kind string) *Failure {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &Failure{Kind: kind}
	for _, gpu := range slices.Sorted(maps.Keys(p.steps)) {
		f.Step = p.steps[gpu]
		if gpu != "" {
			f.GPUs = append(f.GPUs, gpu)
		}
	}
	return f
}

func (p *progress) hung(gpus []string, limit, took time.Duration) Result {
	f := p.unfinished(KindHang)
	f.Text = fmt.Sprintf("no end within %v", limit)
	if len(f.GPUs) == 0 && len(gpus) == 1 {
		f.GPUs = gpus
	}
	return Result{Failure: f, TookMS: took.Milliseconds()}
}

// tail keeps the last words of a program.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 300
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// ownEnv returns the variables that the fake library and tests use. In a renter's container they are the renter's, and
// mean nothing to the driver's library.
func ownEnv() []string {
	var out []string
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "MUSTER_FAKE_CUDA=") || strings.HasPrefix(kv, "MUSTER_TEST_GPUCHECK=") {
			out = append(out, kv)
		}
	}
	return out
}
