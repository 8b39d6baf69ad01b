package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/workload/container"
)

// checkEvery is the time between looks for GPUs that are due for a check.
const checkEvery = 30 * time.Second

// checker checks that GPUs compute: those of an ended lease, and those without a lease.
type checker struct {
	gpus   GPUs
	engine *container.Engine
	runs   *runs
	log    *slog.Logger

	turn chan struct{} // holds one value while GPUs without a lease are checked

	mu sync.Mutex // guards what follows
	// free is the check of GPUs without a lease that goes on at present.
	free struct {
		gpus   []string
		cancel context.CancelFunc
		done   chan struct{}
	}
}

func newChecker(cfg Config, rs *runs) *checker {
	c := &checker{gpus: cfg.GPUs, engine: cfg.Engine, runs: rs, log: cfg.Log, turn: make(chan struct{}, 1)}
	if c.engine != nil && c.engine.Checks() {
		c.gpus.Resets.CheckedBy(func(ctx context.Context, uuid string) error { return c.checkFree(ctx, []string{uuid}) })
	}
	return c
}

// run checks the GPUs that have no lease: after enrolment, a boot, or an upgrade of the driver, and those that
// failed before.
func (c *checker) run(ctx context.Context) {
	if !c.engine.Checks() {
		return
	}
	for {
		// Unless all runs are known, a GPU may have a lease that this process has not seen.
		if due := c.gpus.Checks.Due(); c.runs.complete() && len(due) > 0 {
			_ = c.checkFree(ctx, due) // it logs its error, and they stay due
		}
		if !pause(ctx, checkEvery, nil) {
			return
		}
	}
}

// checkFree checks GPUs that have no lease, until a lease wants one of them. The error is that nothing was found out.
func (c *checker) checkFree(ctx context.Context, gpus []string) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	c.mu.Lock()
	c.free.gpus, c.free.cancel, c.free.done = gpus, cancel, done
	c.mu.Unlock()
	// After the note: a lease that begins now waits for the check's end.
	err := errLeaseBegins
	if leased, wanted := c.runs.leasedGPUs(), c.runs.wantedGPUs(); !slices.ContainsFunc(gpus, func(u string) bool {
		return leased[u] || wanted[u]
	}) {
		err = c.check(ctx, gpus)
	}
	c.mu.Lock()
	c.free.gpus = nil
	c.mu.Unlock()
	return err
}

// errLeaseBegins is why GPUs without a lease are not checked.
var errLeaseBegins = errors.New("a lease begins on the GPUs")

// check checks GPUs in a container of their own and records the result. The error is that nothing was found out; it is
// logged.
func (c *checker) check(ctx context.Context, gpus []string) error {
	ctx, cancel := context.WithTimeout(ctx, gpucheck.DefaultLimit+time.Minute)
	defer cancel()
	watching, seen := context.WithCancel(ctx)
	var links sync.WaitGroup
	links.Go(func() { c.gpus.Telemetry.WatchLinks(watching, gpus...) }) // the check is a load
	res, err := c.engine.CheckGPUs(ctx, gpus, c.gpus.Devices.DeviceNodes(gpus...))
	seen()
	links.Wait()
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("the GPUs could not be checked", "gpus", gpus, "err", err)
		}
		return err
	}
	res.Failure.Explain("/sys")
	c.gpus.Checks.Record(res, gpus...)
	if res.Failure != nil {
		c.log.Warn("GPUs do not compute", "gpus", gpus, "failure", res.Failure)
		return nil
	}
	c.log.Info("GPUs were checked", "gpus", res.GPUs, "opened", res.Opened, "took_ms", res.TookMS)
	return nil
}

// yield ends the check of free GPUs if it includes one of those that a lease begins with.
func (c *checker) yield(ctx context.Context, gpus []string) error {
	c.mu.Lock()
	overlaps := slices.ContainsFunc(c.free.gpus, func(u string) bool { return slices.Contains(gpus, u) })
	cancel, done := c.free.cancel, c.free.done
	c.mu.Unlock()
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

// busy returns the GPUs that the agent's own containers may use: those of leases, and those that are being checked.
func (c *checker) busy() map[string]bool {
	out := c.runs.leasedGPUs()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uuid := range c.free.gpus {
		out[uuid] = true
	}
	return out
}
