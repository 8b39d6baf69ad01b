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
func (dr *driver) weighUnknown(conditions map[string]wire.Condition) {
	dr.reg.mu.Lock()
	defer dr.reg.mu.Unlock()
	learnt := false
	for uuid, c := range conditions {
		r := dr.reg.mem.GPUs[uuid]
		if r == nil {
			continue
		}
		if r.AnswersOf != dr.reg.sys.Driver {
			r.Answers, r.AnswersOf, learnt = nil, dr.reg.sys.Driver, true
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
		dr.reg.save()
	}
}

// waking reports whether the host was suspended a moment ago.
func (dr *driver) waking() bool {
	const jitter = time.Second // the clocks are not read at the same moment
	now, slept := dr.reg.cfg.Now(), dr.reg.cfg.slept()
	dr.reg.mu.Lock()
	defer dr.reg.mu.Unlock()
	if slept-dr.slept > jitter {
		dr.woke = now
	}
	dr.slept = max(dr.slept, slept)
	return !dr.woke.IsZero() && now.Sub(dr.woke) < dr.reg.cfg.timing.wakes
}

// callEvidence is CallEvidence of a host that may have been suspended.
func (dr *driver) callEvidence(err error) (Evidence, bool) {
	var refusal *wire.Error
	if errors.As(err, &refusal) && refusal.Code == wire.CodeUnknown && dr.waking() {
		return Evidence{}, false
	}
	return CallEvidence(err)
}
