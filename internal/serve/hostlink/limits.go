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

// limits bounds how often each host may say what, per replica: enough for any agent of ours in any trouble.
type limits struct {
	now func() time.Time
	mu  sync.Mutex
	by  map[limitKey]*limit
}

// limit is how one host stands with one kind of message.
type limit struct {
	messages *rate.Limiter
	answers  *rate.Limiter // to those that are too many
	refused  int64         // messages, since it was last asked for
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

// A host that sends too often is told so this often. One that heeds the answer needs no more, one that does not shall
// not make us talk.
const (
	answersPerSecond = 1
	answersBurst     = 5
)

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, by: map[limitKey]*limit{}}
}

// maxLimiters bounds the memory; forgetting them all gives every host a fresh burst.
const maxLimiters = 100_000

// take counts a message. Zero: it may be handled; else it must not be, the next may be after wait (whole milliseconds,
// rounded up), and tell says whether the host is to be told. A message that is refused does not put off the next.
func (l *limits) take(host id.Host, what string) (wait time.Duration, tell bool) {
	r, ok := rates[what]
	if !ok {
		return agentapi.MaxRetry, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k := limitKey{host, what}
	b := l.by[k]
	if b == nil {
		if len(l.by) >= maxLimiters {
			clear(l.by)
		}
		b = &limit{messages: rate.NewLimiter(r.perSecond, r.burst), answers: rate.NewLimiter(answersPerSecond, answersBurst)}
		l.by[k] = b
	}
	now := l.now()
	if b.messages.AllowN(now, 1) {
		return 0, false
	}
	b.refused++
	missing := time.Duration((1 - b.messages.TokensAt(now)) / float64(r.perSecond) * float64(time.Second))
	wait = (missing + time.Millisecond - 1).Truncate(time.Millisecond)
	return max(wait, time.Millisecond), b.answers.AllowN(now, 1)
}

// refused is how many of a host's messages were refused since it was last called.
func (l *limits) refused(host id.Host, what string) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.by[limitKey{host, what}]; b != nil {
		n, b.refused = b.refused, 0
	}
	return n
}
