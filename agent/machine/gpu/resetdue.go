package gpu

import (
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// resetAgain is how long a GPU is left alone after an attempt to reset it that did not help: something else on the host
// may have it open.
const resetAgain = time.Hour

// noteRecovery notes which GPUs the driver wants reset. It is part of a look.
func (m *Monitor) noteRecovery(conditions map[string]wire.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uuid, c := range conditions {
		if r := m.mem.GPUs[uuid]; r != nil {
			r.wantsReset = c.RecoveryAction != nil &&
				(*c.RecoveryAction == wire.RecoverReset || *c.RecoveryAction == wire.RecoverDrainAndReset)
		}
	}
}

// ResetDue returns the GPUs without a lease that are not healthy and whose driver asks for a reset, unless their owner
// uses them, they are split or slices, or an attempt was made within the last hour. It counts as an attempt.
func (m *Monitor) ResetDue() []string {
	leased, known := m.leasedNow()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !known || m.blind != nil {
		return nil
	}
	var due []string
	for uuid, r := range m.mem.GPUs {
		if _, used := m.owners[uuid]; used || leased[uuid] || r.Seen != m.boot || r.State == Healthy || !r.wantsReset ||
			r.Instance != nil || r.GPU.MIG.Or(false) || m.cfg.Now().Sub(r.ResetTried) < resetAgain {
			continue
		}
		r.ResetTried = m.cfg.Now()
		due = append(due, uuid)
	}
	if len(due) > 0 {
		m.save()
	}
	slices.Sort(due)
	return due
}
