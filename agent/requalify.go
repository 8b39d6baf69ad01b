package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// resetEvery is the time between looks for GPUs whose driver asks for a reset.
const resetEvery = 30 * time.Second

// requalifyLimit is how long a reset and the check after it may take.
const requalifyLimit = 3 * time.Minute

// requalifies are the operator's requests to reset GPUs, which come with the desired state. Agent.mu guards them.
type requalifies struct {
	waiting []agentapi.GPUOrder           // not begun yet
	begun   map[string]int64              // number of the last request that was begun, by GPU
	results map[string]agentapi.GPUResult // not acknowledged yet, by GPU
}

// takeRequests adds the requests of a desired state that this process has not begun. A process that is killed before
// its result is acknowledged gets the request again; a GPU that is healthy by then is a success. Callers hold a.mu.
func (a *Agent) takeRequests(orders []agentapi.GPUOrder) {
	for _, o := range orders {
		if a.requalifies.begun[o.GPU] == o.Number || len(o.GPU) > 100 {
			continue
		}
		if a.requalifies.begun == nil {
			a.requalifies.begun, a.requalifies.results = map[string]int64{}, map[string]agentapi.GPUResult{}
		}
		a.requalifies.begun[o.GPU] = o.Number
		a.requalifies.waiting = append(a.requalifies.waiting, o)
		poke(a.resets)
	}
}

// resetLoop resets GPUs, one after the other: those that the operator asks for, and those without a lease whose driver
// asks for it.
func (a *Agent) resetLoop(ctx context.Context) {
	for pause(ctx, resetEvery, a.resets) {
		a.mu.Lock()
		waiting := a.requalifies.waiting
		a.requalifies.waiting = nil
		ready := a.known && a.scanned // otherwise a GPU may have a lease that this process has not seen
		a.mu.Unlock()
		for _, o := range waiting {
			a.answerRequalify(ctx, o)
		}
		if ready {
			a.resetDue(ctx)
		}
	}
}

// answerRequalify does what the operator asks for and keeps the result until it is acknowledged.
func (a *Agent) answerRequalify(ctx context.Context, o agentapi.GPUOrder) {
	limited, cancel := context.WithTimeout(ctx, requalifyLimit)
	defer cancel()
	var err error
	if h, known := a.cfg.GPUs.Health()[o.GPU]; !known || h.State != gpu.Healthy {
		err = a.cfg.GPUs.Requalify(limited, o.GPU)
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
	a.log.Info("requalify", "gpu", o.GPU, "err", err)
	a.mu.Lock()
	a.requalifies.results[o.GPU] = res
	a.mu.Unlock()
	poke(a.syncNow)
}

// resetDue resets the GPUs without a lease whose driver asks for it. A GPU whose reset fails, because something else on
// the host has it open, is left to the operator for a while.
func (a *Agent) resetDue(ctx context.Context) {
	wanted := a.wantedGPUs()
	for _, uuid := range a.cfg.GPUs.ResetDue() {
		if wanted[uuid] || ctx.Err() != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, requalifyLimit)
		err := a.cfg.GPUs.Requalify(limited, uuid)
		cancel()
		if err != nil {
			a.log.Warn("a GPU whose driver asks for a reset was not put back into service", "gpu", uuid, "err", err)
		} else {
			a.log.Info("a GPU whose driver asked for a reset is back in service", "gpu", uuid)
		}
	}
}

// requalified returns the results that no reply has acknowledged. Callers hold a.mu.
func (a *Agent) requalified() []agentapi.GPUResult {
	out := slices.Collect(maps.Values(a.requalifies.results))
	slices.SortFunc(out, func(x, y agentapi.GPUResult) int { return int(x.Number - y.Number) })
	return out
}

// ackRequalified removes the results that the server has committed. Callers hold a.mu.
func (a *Agent) ackRequalified(s agentapi.Sync, ack uint64) {
	if ack == 0 || ack != s.Seq {
		return
	}
	for _, r := range s.Requalified {
		if a.requalifies.results[r.GPU] == r {
			delete(a.requalifies.results, r.GPU)
		}
	}
}
