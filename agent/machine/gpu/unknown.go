package gpu

import (
	"errors"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// NVML's "unknown error" (999) alone is weak evidence. Some models, of laptops for example, return it for calls that
// they do not support, and any GPU may return it for a while after the host was suspended. It counts against a GPU only
// if the GPU has answered the call before with the same driver, on a host that has been awake for a while. Whether a
// GPU that never answered can compute is up to the check.

// weighUnknown turns unknown errors into odd answers where the GPU has answered the call before, and remembers which
// calls each GPU answers.
func (m *Monitor) weighUnknown(conditions map[string]wire.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	learnt := false
	for uuid, c := range conditions {
		r := m.mem.GPUs[uuid]
		if r == nil {
			continue
		}
		if r.AnswersOf != m.sys.Driver {
			r.Answers, r.AnswersOf, learnt = nil, m.sys.Driver, true
		}
		for _, e := range c.Unknown {
			if c.Odd == nil && slices.Contains(r.Answers, e.Call) {
				c.Odd = &e
			}
		}
		for _, call := range c.Answered {
			if !slices.Contains(r.Answers, call) {
				r.Answers, learnt = append(r.Answers, call), true
			}
		}
		conditions[uuid] = c
	}
	if learnt {
		m.save()
	}
}

// waking reports whether the host was suspended a moment ago.
func (m *Monitor) waking() bool {
	const jitter = time.Second // the clocks are not read at the same moment
	now, slept := m.cfg.Now(), m.cfg.slept()
	m.mu.Lock()
	defer m.mu.Unlock()
	if slept-m.slept > jitter {
		m.woke = now
	}
	m.slept = max(m.slept, slept)
	return !m.woke.IsZero() && now.Sub(m.woke) < m.cfg.timing.wakes
}

// callEvidence is CallEvidence of a host that may have been suspended.
func (m *Monitor) callEvidence(err error) (Evidence, bool) {
	var refusal *wire.Error
	if errors.As(err, &refusal) && refusal.Code == wire.CodeUnknown && m.waking() {
		return Evidence{}, false
	}
	return CallEvidence(err)
}
