package cuda

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/internal/agentapi"
)

// oldestNCCL is the oldest version that is used: 2.18, of 2023. What it logs of its transport is what package gpucheck
// reads.
const oldestNCCL = 21800

// rounds is how often each size is timed, after one round that is not.
const rounds = 5

// reduceMain is the program of the measurement with NCCL: the nodes' GPUs add up memory together. It writes progress
// and, at last, the result to out, between NCCL's own lines. It returns the exit code: 0 if a result was written.
func reduceMain(args []string, out, errs io.Writer) int {
	fl := flag.NewFlagSet("nccl", flag.ContinueOnError)
	fl.SetOutput(errs)
	library := fl.String("library", "", "CUDA library (default: the driver's)")
	nccl := fl.String("nccl", "libnccl.so.2", "NCCL's library")
	largest := fl.Int("memory", 256, "the most that each GPU adds up, in MiB")
	request := fl.String("request", "", "a gpucheck.ReduceRequest in JSON")
	var q gpucheck.ReduceRequest
	if err := fl.Parse(args); err != nil {
		return 2
	}
	if err := json.Unmarshal([]byte(*request), &q); err != nil || q.Rank < 0 || q.Rank >= len(q.Addresses) ||
		*largest < 1 || *largest > 1024 {
		fmt.Fprintln(errs, "gpucheck nccl: not a request")
		return 2
	}
	enc := json.NewEncoder(out)
	r := &reducer{request: q, largest: *largest << 20, report: func(l gpucheck.Line) { _ = enc.Encode(l) }}
	runtime.LockOSThread() // contexts belong to a thread
	res := r.run(*library, *nccl)
	if err := enc.Encode(gpucheck.Line{Reduce: &res}); err != nil {
		return 1
	}
	if r.meeting != nil {
		r.meeting.part()
	}
	return 0
}

// reducer is one node's part of a measurement.
type reducer struct {
	request gpucheck.ReduceRequest
	largest int // bytes
	report  func(gpucheck.Line)
	meeting *meeting
	cards   []*card
	res     agentapi.NCCL
}

func (r *reducer) step(name string) { r.report(gpucheck.Line{Step: name}) }

func (r *reducer) fail(kind, format string, args ...any) agentapi.NCCL {
	r.res.Kind, r.res.Detail = kind, fmt.Sprintf(format, args...)
	return r.res
}

// call is the result after a call that failed. What fails before the nodes have met is the host's own set-up.
func (r *reducer) call(err *callError) agentapi.NCCL {
	kind := agentapi.NCCLFailed
	if r.meeting == nil {
		kind = agentapi.NCCLSetup
	}
	return r.fail(kind, "%s: %s (%d)", err.call, err.text, err.code)
}

func (r *reducer) run(library, nccl string) agentapi.NCCL {
	r.step("load of the libraries")
	path, before, err := find(library, "/proc/self/mountinfo")
	if err == nil {
		err = open(path, append(before, management("/proc/self/mountinfo")...))
	}
	if err == nil {
		err = openNCCL(nccl)
	}
	if err != nil {
		return r.fail(agentapi.NCCLSetup, "%v", err)
	}
	version, failed := ncclVersion()
	if failed != nil {
		return r.call(failed)
	}
	if r.res.Version = dotted(version); version < oldestNCCL {
		return r.fail(agentapi.NCCLSetup, "NCCL %s is older than %s", r.res.Version, dotted(oldestNCCL))
	}
	if failed := r.prepare(); failed != nil {
		return r.call(failed)
	}
	if failed := r.local(); failed != nil {
		return r.call(failed)
	}
	r.step("meeting of the nodes")
	m, id, err := join(r.request, version, func() (uniqueID, error) {
		id, failed := newUniqueID()
		if failed != nil {
			return id, fmt.Errorf("%s: %s (%d)", failed.call, failed.text, failed.code)
		}
		return id, nil
	})
	switch {
	case errors.Is(err, errPeers):
		return r.fail(agentapi.NCCLPeers, "%v", err)
	case err != nil:
		return r.fail(agentapi.NCCLSetup, "%v", err)
	}
	r.meeting = m
	return r.together(id)
}

// prepare makes every GPU here ready, with its primary context: that is the one that NCCL uses.
func (r *reducer) prepare() *callError {
	r.step("start of CUDA")
	if err := initialise(); err != nil {
		return err
	}
	all, err := devices()
	if err != nil {
		return err
	}
	for _, d := range all {
		g := &card{device: d}
		if g.UUID, err = uuidOf(d); err != nil {
			return err
		}
		if g.context, err = primaryContext(d); err != nil {
			return err
		}
		if err = use(g.context); err != nil {
			return err
		}
		for _, p := range []*pointer{&g.from, &g.to} {
			if *p, err = alloc(r.largest); err != nil {
				return err
			}
		}
		r.cards = append(r.cards, g)
	}
	return nil
}

// local measures between this node's own GPUs.
func (r *reducer) local() *callError {
	if len(r.cards) < 2 {
		return nil
	}
	r.step("all-reduce within the node")
	id, err := newUniqueID()
	if err != nil {
		return err
	}
	comms, err := r.communicators(len(r.cards), 0, id)
	if err != nil {
		return err
	}
	best, err := r.measure(comms, len(r.cards))
	if err == nil {
		r.res.LocalGbps = best.gbps
	}
	return err
}

// together measures between all nodes' GPUs, and checks the sums.
func (r *reducer) together(id uniqueID) agentapi.NCCL {
	n, first := len(r.request.Addresses)*len(r.cards), r.request.Rank*len(r.cards)
	r.res.Ranks = n
	r.step("start of NCCL")
	comms, failed := r.communicators(n, first, id)
	if failed != nil {
		return r.call(failed)
	}
	r.step("sums")
	if failed := r.fill(first); failed != nil {
		return r.call(failed)
	}
	if failed := r.reduce(comms, r.checked(), 1); failed != nil {
		return r.call(failed)
	}
	wrong, failed := r.wrong(n)
	if failed != nil {
		return r.call(failed)
	}
	if wrong != "" {
		return r.fail(agentapi.NCCLWrong, "%s", wrong)
	}
	r.step("all-reduce")
	best, failed := r.measure(comms, n)
	if failed != nil {
		return r.call(failed)
	}
	r.res.BusbwGbps, r.res.Bytes, r.res.Seconds = best.gbps, best.bytes, best.seconds
	return r.res
}

// communicators makes this node's GPUs the ranks from first on.
func (r *reducer) communicators(ranks, first int, id uniqueID) ([]communicator, *callError) {
	comms := newCommunicators(len(r.cards))
	err := group(func() *callError {
		for i, g := range r.cards {
			if err := use(g.context); err != nil {
				return err
			}
			if err := initRank(&comms[i], ranks, id, first+i); err != nil {
				return err
			}
		}
		return nil
	})
	return comms, err
}

// factor spreads the words of a buffer over their range.
const factor = 2654435761

// checked is the part of the buffers whose sums are compared, in words.
func (r *reducer) checked() int { return min(r.largest, 8<<20) / 4 }

// fill writes a pattern into each rank's buffer. Each rank has another pattern.
func (r *reducer) fill(first int) *callError {
	words := make([]uint32, r.checked())
	for i, g := range r.cards {
		for k := range words {
			words[k] = uint32(k)*factor + uint32(first+i)
		}
		if err := use(g.context); err != nil {
			return err
		}
		if err := toGPU(g.from, words); err != nil {
			return err
		}
	}
	return nil
}

// wrong compares the sums on each GPU here with the pattern's; "" if they are right.
func (r *reducer) wrong(n int) (string, *callError) {
	back := make([]uint32, r.checked())
	for _, g := range r.cards {
		if err := use(g.context); err != nil {
			return "", err
		}
		if err := fromGPU(back, g.to); err != nil {
			return "", err
		}
		for k, got := range back {
			want := uint32(n)*(uint32(k)*factor) + uint32(n*(n-1)/2)
			if got != want {
				return fmt.Sprintf("word %d of the sum on %s is %08x instead of %08x", k, g.UUID, got, want), nil
			}
		}
	}
	return "", nil
}

// reduce adds up words on all GPUs here, several times, and waits for the end.
func (r *reducer) reduce(comms []communicator, words, times int) (err *callError) {
	for n := 0; n < times && err == nil; n++ {
		err = group(func() *callError {
			for i, g := range r.cards {
				if err := use(g.context); err != nil {
					return err
				}
				if err := allReduce(g.from, g.to, words, comms[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, g := range r.cards {
		if err == nil {
			err = use(g.context)
		}
		if err == nil {
			err = synchronize()
		}
	}
	return err
}

// speed is the fastest of the sizes.
type speed struct {
	gbps, seconds float64
	bytes         int64
}

// measure times all-reduces of growing size. The bus bandwidth is S/t·2(n−1)/n, as NVIDIA's nccl-tests define it
// (doc/PERFORMANCE.md): the rate of the slowest link, whatever the number of ranks.
func (r *reducer) measure(comms []communicator, n int) (best speed, _ *callError) {
	for bytes := min(8<<20, r.largest); bytes <= r.largest; bytes *= 2 {
		if err := r.reduce(comms, bytes/4, 1); err != nil {
			return best, err
		}
		began := time.Now()
		if err := r.reduce(comms, bytes/4, rounds); err != nil {
			return best, err
		}
		took := time.Since(began).Seconds() / rounds
		gbps := float64(bytes) * 8 / took / 1e9 * 2 * float64(n-1) / float64(n)
		if gbps > best.gbps {
			best = speed{gbps, took, int64(bytes)}
		}
	}
	return best, nil
}

// management returns the driver's NVML library as it is mounted here, which NCCL loads by name.
func management(mountinfo string) (out []string) {
	for _, at := range mounts(mountinfo) {
		if strings.Contains(at, "/libnvidia-ml.so.") && native(at) {
			out = append(out, at)
		}
	}
	return out
}
