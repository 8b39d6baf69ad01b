package agent

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// containerChanged is called when one of this agent's containers starts or ends, and with the zero ref when any of them
// may have.
func (a *Agent) containerChanged(ref agentapi.LeaseRef) {
	if ref == (agentapi.LeaseRef{}) {
		a.runs.mu.Lock()
		a.runs.scanned = false
		a.runs.mu.Unlock()
		poke(a.rescan)
		poke(a.syncNow)
		a.runs.kickAll()
		return
	}
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	if l := a.runs.leases[ref.Lease]; l != nil {
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
			a.runs.mu.Lock()
			first := !a.runs.scanned
			a.runs.scanned = true
			a.runs.mu.Unlock()
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
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	for _, c := range list {
		if a.runs.find(c.Ref) == nil {
			a.log.Warn("container without a lease folder", "lease", c.Ref, "role", c.Role, "state", c.State)
			r := a.runs.add(c.Ref, record{Spec: agentapi.LeaseSpec{LeaseRef: c.Ref}})
			r.dismissed = a.runs.known // wanted runs are known by now
		}
	}
	return nil
}
