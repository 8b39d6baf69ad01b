package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/internal/agentapi"
)

// What a run's buckets and lazy volumes move over the host's line has the run's limits, and counts as its traffic. The
// processes that mount them are in a control group of the run; package firewall has the rules.

// confineTime limits how long the process of a mount waits for its limits.
const confineTime = 20 * time.Second

// mountRun names a run in the firewall.
func mountRun(ref agentapi.LeaseRef) string { return fmt.Sprintf("%s-e%d", ref.Lease, ref.Epoch) }

// hasMounts reports whether processes of the host move data for a run over its line.
func hasMounts(spec agentapi.LeaseSpec) bool { return len(spec.Buckets)+len(spec.Lazy) > 0 }

// confine gives a process of a run's mounts the run's limits.
func (n *network) confine(ref agentapi.LeaseRef, pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), confineTime)
	defer cancel()
	n.mu.Lock()
	defer n.mu.Unlock()
	cfg, ok := n.mountLimits(ref)
	if !ok {
		return fmt.Errorf("the run %s is not known", ref)
	}
	if err := n.keeper.EnsureMounts(ctx, cfg); err != nil {
		return err
	}
	return firewall.Confine(cfg.Host8, cfg.Run, pid)
}

// mountLimits returns what limits a run's mounts; ok is false if the run is not known.
func (n *network) mountLimits(ref agentapi.LeaseRef) (cfg firewall.MountsConfig, ok bool) {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	r := n.runs.find(ref)
	if r == nil || r.rec.Gone {
		return cfg, false
	}
	return firewall.MountsConfig{
		Host8: n.host8, Run: mountRun(ref), Egress: firewall.Egress(r.rec.Spec.Egress),
		Caps: n.caps, Guest: r.egress.addr,
	}, true
}

// mounting lists the runs whose mounts are limited: those that have any, from their start until they are detached.
func (n *network) mounting() []agentapi.LeaseRef { return n.runs.present(hasMounts) }

// ensureMounts makes the limits of all mounts as they should be. run tries again what has failed. A failure
// ends no other run's start: what a run mounts begins with confine, which needs its limits. Callers hold n.mu.
func (n *network) ensureMounts(ctx context.Context) {
	for _, ref := range n.mounting() {
		cfg, ok := n.mountLimits(ref)
		if !ok {
			continue
		}
		if err := n.keeper.EnsureMounts(ctx, cfg); err != nil && ctx.Err() == nil {
			n.log.Error("the limits of a run's mounts could not be looked at", "lease", ref, "err", err)
		}
	}
}

// mountProbe is whether this host can limit what mounts move.
type mountProbe struct {
	mu      sync.Mutex
	limited bool
	tried   time.Time
}

// probeEvery is the time between tries on a host that could not limit mounts at the last one.
const probeEvery = time.Minute

func (p *mountProbe) ok(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.limited && time.Since(p.tried) >= probeEvery {
		p.limited, p.tried = firewall.MountsLimited(ctx) == nil, time.Now()
	}
	return p.limited
}

// countMounts adds what the mounts of a run have moved to its record. Callers hold n.mu.
func (n *network) countMounts(ctx context.Context, ref agentapi.LeaseRef) {
	moved, found, err := firewall.MountsMoved(ctx, n.host8, mountRun(ref))
	if err != nil {
		if ctx.Err() == nil {
			n.log.Warn("traffic of mounts could not be counted", "lease", ref, "err", err)
		}
		return
	}
	if !found {
		return
	}
	n.noteMoved(ref, movedRead{Up: int64(moved.Up), Down: int64(moved.Down)},
		func(rec *record) *movedRead { return &rec.MountsRead })
}

// endMounts counts what the mounts of a run have moved until their end, and removes their limits. The mounts are
// detached.
func (n *network) endMounts(ctx context.Context, ref agentapi.LeaseRef) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.countMounts(ctx, ref)
	return firewall.RemoveMounts(ctx, n.host8, mountRun(ref))
}

// sweep removes limits of mounts that belong to no known run. It is called once.
func (n *network) sweep(ctx context.Context) {
	err := firewall.SweepMounts(ctx, n.host8, func(run string) bool {
		n.runs.mu.Lock()
		defer n.runs.mu.Unlock()
		for r := range n.runs.all() {
			if mountRun(r.ref) == run && !r.rec.Gone {
				return true
			}
		}
		return false
	})
	if err != nil && ctx.Err() == nil {
		n.log.Warn("limits of former leases' mounts are left", "err", err)
	}
}
