package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// checkEvery is the time between looks for GPUs that are due for a check.
const checkEvery = 30 * time.Second

// freeCheck is the check of GPUs without a lease that goes on at present.
type freeCheck struct {
	mu     sync.Mutex
	gpus   []string
	cancel context.CancelFunc
	done   chan struct{}
}

// checkLoop checks the GPUs that have no lease: after enrolment, a boot, or an upgrade of the driver, and those that
// failed before.
func (a *Agent) checkLoop(ctx context.Context) {
	if !a.cfg.Engine.Checks() {
		return
	}
	for {
		a.mu.Lock()
		ready := a.known && a.scanned // otherwise a GPU may have a lease that this process has not seen
		a.mu.Unlock()
		if due := a.cfg.GPUs.Unchecked(); ready && len(due) > 0 {
			a.checkFree(ctx, due)
		}
		if !pause(ctx, checkEvery, nil) {
			return
		}
	}
}

// checkFree checks GPUs that have no lease, until a lease wants one of them.
func (a *Agent) checkFree(ctx context.Context, gpus []string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	a.checking.mu.Lock()
	a.checking.gpus, a.checking.cancel, a.checking.done = gpus, cancel, done
	a.checking.mu.Unlock()
	// After the note: a lease that begins now waits for the check's end.
	if leased, wanted := a.leasedGPUs(), a.wantedGPUs(); !slices.ContainsFunc(gpus, func(u string) bool {
		return leased[u] || wanted[u]
	}) {
		a.checkGPUs(ctx, gpus)
	}
	a.checking.mu.Lock()
	a.checking.gpus = nil
	a.checking.mu.Unlock()
}

// wantedGPUs returns the GPUs of leases that the server wants here, including those of which nothing is here yet.
func (a *Agent) wantedGPUs() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]bool{}
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r.want != nil && !r.rec.Gone {
				for _, uuid := range r.want.GPUs {
					out[uuid] = true
				}
			}
		}
	}
	return out
}

// checkGPUs checks GPUs in a container of their own and records the result. What cannot be found out is logged only.
func (a *Agent) checkGPUs(ctx context.Context, gpus []string) {
	ctx, cancel := context.WithTimeout(ctx, gpucheck.DefaultLimit+time.Minute)
	defer cancel()
	watching, seen := context.WithCancel(ctx)
	var links sync.WaitGroup
	links.Go(func() { a.cfg.GPUs.WatchLinks(watching, gpus...) }) // the check is a load
	res, err := a.cfg.Engine.CheckGPUs(ctx, gpus, a.cfg.GPUs.DeviceNodes(gpus...))
	seen()
	links.Wait()
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("the GPUs could not be checked", "gpus", gpus, "err", err)
		}
		return
	}
	a.cfg.GPUs.Checked(res, gpus...)
	if res.Failure != nil {
		a.log.Warn("GPUs do not compute", "gpus", gpus, "failure", res.Failure)
		return
	}
	a.log.Info("GPUs were checked", "gpus", res.GPUs, "opened", res.Opened, "took_ms", res.TookMS)
}

// yieldCheck ends the check of free GPUs if it includes one of those that a lease begins with.
func (a *Agent) yieldCheck(ctx context.Context, gpus []string) error {
	a.checking.mu.Lock()
	overlaps := slices.ContainsFunc(a.checking.gpus, func(u string) bool { return slices.Contains(gpus, u) })
	cancel, done := a.checking.cancel, a.checking.done
	a.checking.mu.Unlock()
	if !overlaps {
		return nil
	}
	cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
