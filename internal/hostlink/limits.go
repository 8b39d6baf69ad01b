package hostlink

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/internal/id"
)

var errMalformed = errors.New("the message cannot be read")

// limits bounds how often each host may say what, per replica: enough for any agent of ours in any trouble.
type limits struct {
	now func() time.Time
	mu  sync.Mutex
	by  map[limitKey]*rate.Limiter
}

type limitKey struct {
	host id.Host
	what string
}

var rates = map[string]struct {
	perSecond rate.Limit
	burst     int
}{
	"sync":      {10, 50},
	"inventory": {0.5, 10},
	"telemetry": {3, 20},
}

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, by: map[limitKey]*rate.Limiter{}}
}

// maxLimiters bounds the memory; forgetting them all gives every host a fresh burst.
const maxLimiters = 100_000

func (l *limits) allow(host id.Host, what string) bool {
	r, ok := rates[what]
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := limitKey{host, what}
	b := l.by[k]
	if b == nil {
		if len(l.by) >= maxLimiters {
			clear(l.by)
		}
		b = rate.NewLimiter(r.perSecond, r.burst)
		l.by[k] = b
	}
	return b.AllowN(l.now(), 1)
}
