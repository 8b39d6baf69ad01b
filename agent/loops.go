package agent

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// containerChanged is called when one of this agent's containers starts or ends, and with the zero ref when any of them
// may have.
func (a *Agent) containerChanged(ref agentapi.LeaseRef) {
	if ref == (agentapi.LeaseRef{}) {
		a.mu.Lock()
		a.scanned = false
		a.mu.Unlock()
		poke(a.rescan)
		poke(a.syncNow)
		a.kickAll()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.leases[ref.Lease]; l != nil {
		poke(l.kick)
	}
}

// scanEvery is how often Docker's list of containers is compared with the agent's runs.
const scanEvery = time.Minute

// scanLoop finds containers with the agent's label that have no lease folder, so that a full report includes everything
// that this agent has made.
func (a *Agent) scanLoop(ctx context.Context) {
	for {
		wait := scanEvery
		if err := a.scan(ctx); err != nil {
			if ctx.Err() == nil {
				a.log.Warn("cannot list containers", "err", err)
			}
			if !pause(ctx, 2*time.Second, nil) {
				return
			}
			wait = 0
		} else {
			a.mu.Lock()
			first := !a.scanned
			a.scanned = true
			a.mu.Unlock()
			if first {
				poke(a.syncNow)
			}
		}
		if !pause(ctx, wait, a.rescan) {
			return
		}
	}
}

func (a *Agent) scan(ctx context.Context) error {
	list, err := a.cfg.Engine.List(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range list {
		if a.find(c.Ref) == nil {
			a.log.Warn("container without a lease folder", "lease", c.Ref, "role", c.Role, "state", c.State)
			r := a.addRun(c.Ref, record{Spec: agentapi.LeaseSpec{LeaseRef: c.Ref}})
			r.dismissed = a.known // wanted runs are known by now
		}
	}
	return nil
}

// meterLoop writes ticks of every running workload into the journal.
func (a *Agent) meterLoop(ctx context.Context) {
	for pause(ctx, a.cfg.Tick, nil) {
		if err := a.meter(ctx); err != nil && ctx.Err() == nil {
			a.log.Error("usage could not be noted", "err", err)
		}
	}
}

// meter writes ticks for the workloads that Docker lists as running, and for the runs that are done and keep their
// place. A workload that Docker does not list gets no tick now; if it turns out to have run on, the next tick covers
// the time.
func (a *Agent) meter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	boot := a.cfg.BootMS() // read before the list: a tick never claims more than was observed
	started, waiting := map[agentapi.LeaseRef][]string{}, map[agentapi.LeaseRef][]string{}
	a.mu.Lock()
	for _, l := range a.leases {
		for _, r := range l.runs {
			switch o := r.rec.Outcome; {
			case !r.rec.Started || r.rec.Gone:
			case o.keepsPlace() && !r.dismissed:
				waiting[r.ref] = r.rec.Spec.GPUs
			case o == nil || o.ExitCode == nil:
				started[r.ref] = r.rec.Spec.GPUs
			}
		}
	}
	a.mu.Unlock()
	var ticks []journal.Tick
	tick := func(ref agentapi.LeaseRef, gpus []string) {
		counters, err := a.cfg.GPUs.EnergyMJ(ctx, gpus...)
		if err != nil {
			a.log.Debug("energy is not known", "lease", ref, "err", err)
		}
		ticks = append(ticks, journal.Tick{LeaseRef: ref, BootMS: boot, Counters: counters})
	}
	for ref, gpus := range waiting {
		tick(ref, gpus)
	}
	if len(started) > 0 {
		list, err := a.cfg.Engine.List(ctx)
		if err != nil {
			return err
		}
		for _, c := range list {
			if gpus, ok := started[c.Ref]; ok && c.Role == container.Work && c.State == container.Running {
				tick(c.Ref, gpus)
			}
		}
	}
	if len(ticks) == 0 {
		return nil
	}
	return a.journal.Tick(ticks)
}

const (
	telemetryLive = time.Second
	telemetryIdle = 10 * time.Second
)

// telemetryLoop sends samples: every second while a person watches, otherwise every ten. While nothing of a lease is on
// the host, and no person watches, it sends only those that say something new; see link.Calm.
func (a *Agent) telemetryLoop(ctx context.Context) {
	last, calm := time.Time{}, link.Calm{}
	for pause(ctx, telemetryLive, nil) {
		a.mu.Lock()
		live := a.cfg.Now().Before(a.watched)
		a.mu.Unlock()
		if !live && a.cfg.Now().Sub(last) < telemetryIdle {
			continue
		}
		last = a.cfg.Now()
		a.sample(ctx, live, &calm)
	}
}

// sample sends one sample of each GPU and run. With live it does so although nothing has changed.
func (a *Agent) sample(ctx context.Context, live bool, calm *link.Calm) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nodes := a.nodeSamples()
	batch, err := a.cfg.GPUs.Sample(ctx)
	if err != nil {
		batch.Samples = nil // the inventory and the health events contain the cause
	}
	now := a.cfg.Now()
	if len(batch.Samples)+len(nodes) == 0 || !live && !a.leased() && !calm.Due(batch.Samples, now) {
		return
	}
	if anchor, ok := a.journal.Anchor(); ok {
		for i := range batch.Samples {
			batch.Samples[i].AtMS = anchor.At(batch.BootMS)
		}
	}
	if err := a.cfg.Link.Telemetry(agentapi.Telemetry{Samples: batch.Samples, Nodes: nodes}); err != nil {
		a.log.Debug("telemetry is lost", "err", err)
		*calm = link.Calm{}
		return
	}
	calm.Sent(batch.Samples, now)
}

const (
	inventoryEvery = time.Hour
	inventoryRetry = 10 * time.Second
	// problemsEvery is how often a host with problems looks whether it still has them.
	problemsEvery = time.Minute
)

// inventoryLoop sends the host's inventory: when the link comes up, when a GPU's health changes, when its problems do,
// and every hour.
func (a *Agent) inventoryLoop(ctx context.Context) {
	held := backoff{log: a.log, what: "inventories"}
	for inv := a.look(ctx); ; inv = a.look(ctx) {
		wait := inventoryEvery
		err := a.cfg.Link.Inventory(ctx, inv)
		if held.wait(ctx, err) {
			continue
		}
		if err != nil {
			a.log.Debug("inventory not sent", "err", err)
			wait = inventoryRetry
		}
		if !a.untilInventory(ctx, wait, inv.Problems) {
			return
		}
	}
}

// look reads the host's inventory.
func (a *Agent) look(ctx context.Context) agentapi.Inventory {
	inv := a.cfg.Inventory(ctx)
	inv.Problems = append(inv.Problems, a.memoryProblems()...)
	return inv
}

// sameProblem ignores the evidence, which may be a number that changes all the time.
func sameProblem(a, b agentapi.Problem) bool { return a.Code == b.Code && a.Cause == b.Cause }

// untilInventory waits until the inventory is due: what may have changed it has happened, the host's problems are not
// those that were sent, or the time is over. It returns false if ctx ended.
func (a *Agent) untilInventory(ctx context.Context, wait time.Duration, sent []agentapi.Problem) bool {
	due := time.NewTimer(wait)
	defer due.Stop()
	var again <-chan time.Time
	if len(sent) > 0 {
		t := time.NewTicker(problemsEvery)
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case <-due.C:
			return true
		case <-again:
			if !slices.EqualFunc(a.look(ctx).Problems, sent, sameProblem) {
				return true
			}
		case <-a.inventory:
			return true
		case <-a.cfg.GPUs.Changed():
			poke(a.syncNow)
			a.kickAll()
			return true
		case <-ctx.Done():
			return false
		}
	}
}

const (
	cleanEvery  = time.Hour
	keepImages  = 3 * 24 * time.Hour
	minFreeDisk = 20 << 30
)

// cleanLoop removes images that nothing needs.
func (a *Agent) cleanLoop(ctx context.Context) {
	for pause(ctx, cleanEvery, nil) {
		a.mu.Lock()
		var inUse []string
		for _, l := range a.leases {
			for _, r := range l.runs {
				if r.rec.ImageDigest != "" && !r.rec.Gone {
					inUse = append(inUse, r.rec.ImageDigest)
				}
			}
		}
		a.mu.Unlock()
		if _, err := a.cfg.Images.GC(ctx, inUse, keepImages, minFreeDisk); err != nil && ctx.Err() == nil {
			a.log.Warn("images could not be cleaned up", "err", err)
		}
		a.reportImages()
	}
}
