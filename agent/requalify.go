package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// resetEvery is the time between looks for GPUs that a reset would mend.
const resetEvery = 30 * time.Second

// requalifyLimit is how long a reset, the registration with the NVSwitches, and the check after it may take.
const requalifyLimit = 6 * time.Minute

// resetter resets GPUs: those that the operator asks for, by requests that come with the desired state, and those
// without a lease that a reset would mend.
type resetter struct {
	gpus     GPUs
	runs     *runs
	log      *slog.Logger
	requests chan struct{} // there are requests

	mu      sync.Mutex                    // guards what follows
	waiting []agentapi.GPUOrder           // not begun yet
	begun   map[string]int64              // number of the last request that was begun, by GPU
	results map[string]agentapi.GPUResult // not acknowledged yet, by GPU
}

func newResetter(cfg Config, rs *runs) *resetter {
	return &resetter{gpus: cfg.GPUs, runs: rs, log: cfg.Log, requests: make(chan struct{}, 1), begun: map[string]int64{},
		results: map[string]agentapi.GPUResult{}}
}

// order adds the requests of a desired state that this process has not begun. A process that is killed before
// its result is acknowledged gets the request again; a GPU that is healthy by then is a success. Callers hold g.mu.
func (g *resetter) order(orders []agentapi.GPUOrder) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range orders {
		if g.begun[o.GPU] == o.Number || len(o.GPU) > 100 {
			continue
		}
		g.begun[o.GPU] = o.Number
		g.waiting = append(g.waiting, o)
		poke(g.requests)
	}
}

// run resets GPUs, one after the other: those that the operator asks for, and those without a lease that a reset would
// mend.
func (g *resetter) run(ctx context.Context) {
	for pause(ctx, resetEvery, g.requests) {
		g.mu.Lock()
		waiting := g.waiting
		g.waiting = nil
		g.mu.Unlock()
		for _, o := range waiting {
			g.answer(ctx, o)
		}
		if g.runs.complete() { // otherwise a GPU may have a lease that this process has not seen
			g.resetDue(ctx)
		}
	}
}

// answer does what the operator asks for and keeps the result until it is acknowledged.
func (g *resetter) answer(ctx context.Context, o agentapi.GPUOrder) {
	limited, cancel := context.WithTimeout(ctx, requalifyLimit)
	defer cancel()
	var err error
	if h, known := g.gpus.Diagnosis.Health()[o.GPU]; !known || h.State != gpu.Healthy {
		err = g.gpus.Resets.Requalify(limited, o.GPU)
	}
	if ctx.Err() != nil {
		return // the next process does it
	}
	res := agentapi.GPUResult{GPUOrder: o}
	if err != nil {
		res.Error = "it could not be reset"
		if f := fault.From(err); f != nil {
			res.Error = clipped(f.Message)
		}
	}
	g.log.Info("requalify", "gpu", o.GPU, "err", err)
	g.mu.Lock()
	g.results[o.GPU] = res
	g.mu.Unlock()
	poke(g.runs.report)
}

// resetDue resets the GPUs without a lease that a reset would mend. A GPU whose reset fails, because something else on
// the host has it open, is left to the operator for a while.
func (g *resetter) resetDue(ctx context.Context) {
	wanted := g.runs.wantedGPUs()
	for _, uuid := range g.gpus.Resets.Due() {
		if wanted[uuid] || ctx.Err() != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, requalifyLimit)
		err := g.gpus.Resets.Requalify(limited, uuid)
		cancel()
		if err != nil {
			g.log.Warn("a GPU that needs a reset was not put back into service", "gpu", uuid, "err", err)
		} else {
			g.log.Info("a GPU that needed a reset is back in service", "gpu", uuid)
		}
	}
}

// toReport returns the results that no reply has acknowledged.
func (g *resetter) toReport() []agentapi.GPUResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := slices.Collect(maps.Values(g.results))
	slices.SortFunc(out, func(x, y agentapi.GPUResult) int { return int(x.Number - y.Number) })
	return out
}

// acknowledge removes the results that the server has committed.
func (g *resetter) acknowledge(reported []agentapi.GPUResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range reported {
		if g.results[r.GPU] == r {
			delete(g.results, r.GPU)
		}
	}
}
