package link

import (
	mathrand "math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Calm decides which samples of a host without leases are sent. Most of them say what the last ones said, and nothing
// is billed or decided by them: they are sent if a GPU's readings have changed noticeably, and otherwise once in
// agentapi.CalmTelemetry at most. The zero value sends the first samples. It is not safe for concurrent use.
type Calm struct {
	sent map[string]agentapi.GPUSample // by GPU
	due  time.Time                     // when samples are sent although nothing has changed
}

// A reading has changed noticeably if it differs by at least this from the one that was sent last.
const (
	calmUtil    = 10        // percentage points
	calmMem     = 512 << 20 // bytes
	calmPowerMW = 25_000
	calmTemp    = 5 // °C
)

// Due reports whether samples must be sent now.
func (c *Calm) Due(samples []agentapi.GPUSample, now time.Time) bool {
	if !now.Before(c.due) || len(samples) != len(c.sent) {
		return true
	}
	for _, s := range samples {
		last, known := c.sent[s.GPU]
		if !known || moved(last.Util, s.Util, calmUtil) || moved(last.MemUsed, s.MemUsed, calmMem) ||
			moved(last.PowerMW, s.PowerMW, calmPowerMW) || moved(last.TempC, s.TempC, calmTemp) {
			return true
		}
	}
	return false
}

// Sent notes that samples were sent. When the next are due varies at random by a fifth, so that hosts that connected
// together do not keep sending together.
func (c *Calm) Sent(samples []agentapi.GPUSample, now time.Time) {
	c.sent = make(map[string]agentapi.GPUSample, len(samples))
	for _, s := range samples {
		c.sent[s.GPU] = s
	}
	c.due = now.Add(agentapi.CalmTelemetry - mathrand.N(agentapi.CalmTelemetry/5))
}

// moved reports whether a reading differs by at least step, or is known only once.
func moved[T int | int64](before, now *T, step T) bool {
	if before == nil || now == nil {
		return before != now
	}
	return max(*before, *now)-min(*before, *now) >= step
}
