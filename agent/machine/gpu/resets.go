package gpu

import (
	"context"
	"slices"
	"time"

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
}

// Due returns the GPUs without a lease that are not healthy and whose driver asks for a reset, unless their owner
// uses them, they are split or slices, or an attempt was made within the last hour. It counts as an attempt.
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
			!r.wantsReset || r.Instance != nil || r.GPU.MIG.Or(false) || rs.reg.cfg.Now().Sub(r.ResetTried) < resetAgain {
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

// Requalify resets a quarantined or suspect GPU, which must have no lease and not be in use, and makes it healthy if it
// passes the check. It returns a Conflict if the GPU still has a defect, which the error names, or has a lease.
func (rs *Resets) Requalify(ctx context.Context, uuid string) error {
	if state := rs.diagnosis.Health()[uuid].State; state == "" {
		return fault.New(fault.NotFound, "GPU %s not found on this host", uuid)
	} else if state == Healthy {
		return fault.New(fault.Conflict, "%s is healthy", uuid)
	}
	if isSlice(uuid) || rs.reg.known()[uuid].GPU.MIG.Or(false) {
		return fault.New(fault.Conflict, "%s is split or a slice: a reset would end the leases of its other slices and "+
			"destroy the layout. When none has a lease, reset it with nvidia-smi, make the layout again, and restart the agent",
			uuid)
	}
	if leased, known := rs.owners.leasedNow(); !known {
		return fault.New(fault.Unavailable, "the agent is just starting: it does not know yet which GPUs have a lease")
	} else if u := leasedAmong(leased, rs.reg.maker.together(rs.reg, uuid)); u == uuid {
		return fault.New(fault.Conflict, "%s has a lease: it can be reset when that has ended", uuid)
	} else if u != "" {
		return fault.New(fault.Conflict, "a reset of %s resets its whole hive, and %s has a lease: it can be reset when "+
			"that has ended", uuid, u)
	}
	rs.reg.looking.Lock()
	defer rs.reg.looking.Unlock()
	if _, err := rs.driver.system(ctx); err != nil {
		return asFault(err)
	}
	if err := rs.reg.maker.reset(ctx, rs, uuid); err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s could not be reset: %v", uuid, err)
	}
	if err := rs.watcher.lookAfterReset(ctx, uuid); err != nil {
		return fault.Wrap(err, fault.Conflict, "%s does not pass the check after its reset: %v", uuid, err)
	}
	if h := rs.diagnosis.Health()[uuid]; h.State != Healthy {
		return fault.New(fault.Conflict, "%s is still %s after its reset: %s", uuid, h.State, h.Reason)
	}
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
