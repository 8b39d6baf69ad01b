package hostlink

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

var errMalformed = errors.New("the message cannot be read")

// limits limits the rate of each host's messages by kind, per replica. The limits suffice for our agent in all
// circumstances.
type limits struct {
	now func() time.Time
	mu  sync.Mutex
	by  map[limitKey]*limit
	// sweepAt is the number of limits at which those are removed that have recovered: a new one would allow as much.
	sweepAt int
}

// limit is the rate limits of one host for one kind of message.
type limit struct {
	messages *rate.Limiter
	answers  *rate.Limiter // limits the responses to refused messages
	refused  int64         // refused messages since the last call of limits.refused
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
	"volume":    {20, 200},
}

// Limits for responses to a host that sends too often. A host that obeys the first response needs no more; one that
// does not must not cause more traffic.
const (
	answersPerSecond = 1
	answersBurst     = 5
)

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, by: map[limitKey]*limit{}, sweepAt: leastSweep}
}

// leastSweep is the least number of limits at which they are swept.
const leastSweep = 1000

// sweep removes the limits that have recovered. The next sweep is due when there are twice as many as remain, so that
// its cost per message does not grow with the fleet. Only enrolled hosts have limits. Callers hold l.mu.
func (l *limits) sweep(now time.Time) {
	for k, b := range l.by {
		counts := b.refused > 0 && k.what == "telemetry" // the host's next report reads it
		if !counts && b.messages.TokensAt(now) >= float64(b.messages.Burst()) &&
			b.answers.TokensAt(now) >= answersBurst {
			delete(l.by, k)
		}
	}
	l.sweepAt = max(leastSweep, 2*len(l.by))
}

// take counts a message. If wait is 0, the message may be handled. Otherwise it must be refused; the next one is
// allowed after wait, rounded up to whole milliseconds, and answer reports whether to send the host a response. A
// refused message does not postpone the next one.
func (l *limits) take(host id.Host, what string) (wait time.Duration, answer bool) {
	r, ok := rates[what]
	if !ok {
		return agentapi.MaxRetry, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := limitKey{host, what}
	b := l.by[k]
	now := l.now()
	if b == nil {
		if len(l.by) >= l.sweepAt {
			l.sweep(now)
		}
		b = &limit{messages: rate.NewLimiter(r.perSecond, r.burst), answers: rate.NewLimiter(answersPerSecond, answersBurst)}
		l.by[k] = b
	}
	if b.messages.AllowN(now, 1) {
		return 0, false
	}
	b.refused++
	missing := time.Duration((1 - b.messages.TokensAt(now)) / float64(r.perSecond) * float64(time.Second))
	wait = (missing + time.Millisecond - 1).Truncate(time.Millisecond)
	return max(wait, time.Millisecond), b.answers.AllowN(now, 1)
}

// refused returns the number of a host's refused messages since the last call.
func (l *limits) refused(host id.Host, what string) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.by[limitKey{host, what}]; b != nil {
		n, b.refused = b.refused, 0
	}
	return n
}
