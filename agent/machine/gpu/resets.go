package gpu

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/fault"
)

// resetAgain is how long a GPU is left alone after an attempt to reset it that did not help: something else on the host
// may have it open.
const resetAgain = time.Hour

// Resets resets GPUs that have no lease.
type Resets struct {
	reg       *registry
	diagnosis *Diagnosis
	driver    *driver
	owners    *Owners
	watcher   *watcher

	one   sync.Mutex                                         // held during a reset and what follows from it
	check func(ctx context.Context, uuid string) (err error) // nil: none; reg.mu guards it
}

// CheckedBy names what checks that a GPU computes after its reset, and records the result (Checks.Record). The error is
// that nothing was found out. Without a checker a GPU counts as well if it reports no defect.
func (rs *Resets) CheckedBy(check func(ctx context.Context, uuid string) error) {
	rs.reg.mu.Lock()
	defer rs.reg.mu.Unlock()
	rs.check = check
}

// Due returns the GPUs without a lease that are not healthy and that a reset would mend: their driver asks for it, or
// memory errors stand until then. It leaves out GPUs that their owner uses, that cannot be reset, and those for which
// an attempt was made within the last hour. It counts as an attempt.
func (rs *Resets) Due() []string {
	leased, known := rs.owners.leasedNow()
	rs.reg.mu.Lock()
	defer rs.reg.mu.Unlock()
	if !known || rs.reg.blind != nil {
		return nil
	}
	var due []string
	for uuid, r := range rs.reg.mem.GPUs {
		if _, used := rs.owners.unleased[uuid]; used || leased[uuid] || r.Seen != rs.reg.boot || r.State == Healthy ||
			!r.wantsReset || r.noReset() != "" || rs.reg.cfg.Now().Sub(r.ResetTried) < resetAgain {
			continue
		}
		r.ResetTried = rs.reg.cfg.Now()
		due = append(due, uuid)
	}
	if len(due) > 0 {
		rs.reg.save()
	}
	slices.Sort(due)
	return due
}

// noReset returns why a GPU cannot be reset alone; "" if it can.
func (r *record) noReset() string {
	switch {
	case r.Instance != nil || r.GPU.MIG.Or(false):
		return "is split or a slice: a reset would end the leases of its other slices and destroy the layout. When none " +
			"has a lease, reset it with nvidia-smi, make the layout again, and restart the agent"
	case r.Coherent:
		return "shares its memory with the processor, and a reset would break what the kernel holds there: reboot the host"
	}
	return ""
}

// resettable reports whether a reset of a GPU can be expected to help.
func (reg *registry) resettable(r record) bool {
	return r.noReset() == "" && r.ResetRefused != reg.boot
}

// Requalify resets a quarantined or suspect GPU, which must have no lease and not be in use, and makes it healthy if
// it is registered with its NVSwitches, reports no defect, and passes the check. It returns a Conflict if the GPU
// still has a defect, which the error names, or has a lease.
func (rs *Resets) Requalify(ctx context.Context, uuid string) error {
	rs.one.Lock()
	defer rs.one.Unlock()
	if err := rs.refuse(uuid); err != nil {
		return err
	}
	defer rs.prove(uuid, false)
	if err := rs.reset(ctx, uuid); err != nil {
		return err
	}
	began := rs.reg.cfg.Now()
	c, err := rs.await(ctx, uuid)
	if err != nil {
		return fault.Wrap(err, fault.Conflict, "%s does not pass the check after its reset: %v", uuid, err)
	}
	rs.checkNow(ctx, uuid, c)
	if err := rs.judge(ctx, uuid, began); err != nil {
		return fault.Wrap(err, fault.Conflict, "%s does not pass the check after its reset: %v", uuid, err)
	}
	if h := rs.diagnosis.Health()[uuid]; h.State != Healthy {
		return fault.New(fault.Conflict, "%s is still %s after its reset: %s", uuid, h.State, h.Reason)
	}
	return nil
}

// refuse returns why a GPU is not reset; nil if nothing is in the way.
func (rs *Resets) refuse(uuid string) error {
	if state := rs.diagnosis.Health()[uuid].State; state == "" {
		return fault.New(fault.NotFound, "GPU %s not found on this host", uuid)
	} else if state == Healthy {
		return fault.New(fault.Conflict, "%s is healthy", uuid)
	}
	r := rs.reg.known()[uuid]
	if why := r.noReset(); why != "" {
		return fault.New(fault.Conflict, "%s %s", uuid, why)
	}
	if leased, known := rs.owners.leasedNow(); !known {
		return fault.New(fault.Unavailable, "the agent is just starting: it does not know yet which GPUs have a lease")
	} else if u := leasedAmong(leased, rs.reg.maker.together(rs.reg, uuid)); u == uuid {
		return fault.New(fault.Conflict, "%s has a lease: it can be reset when that has ended", uuid)
	} else if u != "" {
		return fault.New(fault.Conflict, "a reset of %s resets its whole hive, and %s has a lease: it can be reset when "+
			"that has ended", uuid, u)
	}
	return nil
}

// reset resets a GPU. Looks do not judge it from then on.
func (rs *Resets) reset(ctx context.Context, uuid string) error {
	rs.reg.looking.Lock()
	defer rs.reg.looking.Unlock()
	if _, err := rs.driver.system(ctx); err != nil {
		return asFault(err)
	}
	rs.prove(uuid, true)
	err := rs.reg.maker.reset(ctx, rs, uuid)
	rs.reg.mu.Lock()
	defer rs.reg.mu.Unlock()
	if r := rs.reg.mem.GPUs[uuid]; r != nil {
		r.ResetRefused = ""
		if err != nil {
			r.ResetRefused = rs.reg.boot
		}
		rs.reg.save()
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s could not be reset: %v", uuid, err)
	}
	return nil
}

// prove begins or ends the time in which a GPU has to show that its reset has helped.
func (rs *Resets) prove(uuid string, proving bool) {
	rs.reg.mu.Lock()
	defer rs.reg.mu.Unlock()
	if r := rs.reg.mem.GPUs[uuid]; r != nil {
		r.proving = proving
	}
}

// await waits, for a limited time, until a GPU that was reset is registered with its NVSwitches, and returns what it
// reports of itself then. The other GPUs are looked at meanwhile.
func (rs *Resets) await(ctx context.Context, uuid string) (wire.Condition, error) {
	t := rs.reg.cfg.timing
	limited, cancel := context.WithTimeout(ctx, t.settle)
	defer cancel()
	for {
		c, err := rs.condition(ctx, uuid)
		if err != nil || c.Fabric == nil || c.Fabric.State == wire.FabricCompleted {
			return c, err
		}
		select {
		case <-limited.Done():
			return c, ctx.Err() // a registration that is late is a matter for the verdict
		case <-time.After(t.poll):
		}
	}
}

// condition returns what a GPU that was reset reports of itself.
func (rs *Resets) condition(ctx context.Context, uuid string) (c wire.Condition, err error) {
	rs.reg.looking.Lock()
	defer rs.reg.looking.Unlock()
	return rs.watcher.conditionOf(ctx, uuid)
}

// checkNow checks that a GPU that was reset computes. Until it has passed, the GPU is due for a check.
func (rs *Resets) checkNow(ctx context.Context, uuid string, c wire.Condition) {
	rs.reg.mu.Lock()
	check := rs.check
	if r := rs.reg.mem.GPUs[uuid]; r != nil {
		r.Check, r.CheckedFor = "", ""
		if check != nil {
			r.Check = "it was reset, and has not passed a check since"
		}
	}
	rs.reg.mu.Unlock()
	if check == nil || c.Fabric != nil && !c.Fabric.Ready() {
		return
	}
	if err := check(ctx, uuid); err != nil {
		rs.reg.log.Warn("a GPU could not be checked after its reset", "gpu", uuid, "err", err)
	}
}

// judge decides how healthy a GPU is after its reset. Evidence that came since then counts on.
func (rs *Resets) judge(ctx context.Context, uuid string, began time.Time) error {
	rs.reg.looking.Lock()
	defer rs.reg.looking.Unlock()
	c, err := rs.watcher.conditionOf(ctx, uuid)
	if err != nil {
		return err
	}
	rs.reg.mu.Lock()
	r := *rs.reg.mem.GPUs[uuid]
	standing := ConditionEvidence(c)
	if len(standing) > 0 { // the reset has not helped
		rs.reg.mem.GPUs[uuid].ResetRefused = rs.reg.boot
	}
	rs.reg.mu.Unlock()
	for i := range standing {
		standing[i].Contained = false
	}
	if c.Fabric != nil && !c.Fabric.Ready() {
		standing = append(standing, fabricEvidence(*c.Fabric))
	}
	if r.Check != "" {
		standing = append(standing, Evidence{Kind: kindCheck, Weight: Suspect, Detail: r.Check})
	}
	rs.diagnosis.examine(uuid, standing, !r.Last.After(began))
	return nil
}

// leasedAmong returns the first of the GPUs that has a lease; "" if none has.
func leasedAmong(leased map[string]bool, uuids []string) string {
	for _, u := range uuids {
		if leased[u] {
			return u
		}
	}
	return ""
}
