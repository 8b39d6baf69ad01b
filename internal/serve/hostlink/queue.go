package hostlink

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/metrics"
)

const (
	// maxBacklog is how much work a queue accepts, as time until a new message would be handled, if its sender waits for
	// at least twice as long. Senders of further messages are asked to come back later.
	maxBacklog = 2 * time.Second
	// maxQueued limits the memory of a queue whose messages are handled quickly.
	maxQueued = 20_000
	// firstEstimate is the assumed time to handle a message before any was handled.
	firstEstimate = 5 * time.Millisecond
)

// queueConfig configures a queue.
type queueConfig struct {
	ctx     context.Context // that messages are handled with
	name    string          // label in metrics
	workers int             // messages handled at the same time
	// patience is how long the sender waits for the reply, if the message does not say so (agentapi.HeaderWait).
	patience time.Duration
	// refuse tells the sender of a message that it should send it again after wait. nil: the message is dropped.
	refuse func(m *nats.Msg, wait time.Duration)
	now    func() time.Time
}

// queue handles messages of one kind in order of arrival, at most workers at a time. It stays short under overload: a
// message whose sender no longer waits is dropped instead of handled, and when the waiting messages are more than
// maxBacklog of work, the senders of new ones are told when to send them again. Those times are spread at the rate at
// which messages are handled, so that refused senders do not all come back together.
type queue struct {
	queueConfig
	handled sync.WaitGroup // running workers

	mu      sync.Mutex
	closed  bool
	busy    int           // running workers
	waiting []queued      // oldest first
	each    time.Duration // moving average of the time to handle one message
	next    time.Time     // time given to the sender that was refused last
}

// queued is a message that waits.
type queued struct {
	msg     *nats.Msg
	arrived time.Time
	until   time.Time // the sender waits until then
	handle  func(context.Context, *nats.Msg)
}

func newQueue(c queueConfig) *queue { return &queue{queueConfig: c, each: firstEstimate} }

// add queues a message or refuses it. It never blocks.
func (q *queue) add(m *nats.Msg, handle func(context.Context, *nats.Msg)) {
	now, patience := q.now(), q.patienceOf(m)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	if backlog := q.backlog(); backlog > min(maxBacklog, patience/2) || len(q.waiting) >= maxQueued {
		wait := q.comeBack(now, backlog)
		q.mu.Unlock()
		metrics.HostMessage(q.name, "refused")
		if q.refuse != nil {
			q.refuse(m, wait)
		}
		return
	}
	q.waiting = append(q.waiting, queued{msg: m, arrived: now, until: now.Add(patience), handle: handle})
	spawn := q.busy < q.workers
	if spawn {
		q.busy++
		q.handled.Add(1)
	}
	q.mu.Unlock()
	if spawn {
		go q.work()
	}
}

// backlog estimates when a message that arrives now would be handled. Callers hold q.mu.
func (q *queue) backlog() time.Duration {
	if q.busy < q.workers {
		return 0
	}
	return time.Duration(len(q.waiting)+1) * q.each / time.Duration(q.workers)
}

// comeBack returns the wait of a refused sender. Each gets a time of its own, at four fifths of the rate at which
// messages are handled, because others arrive meanwhile. Callers hold q.mu.
func (q *queue) comeBack(now time.Time, backlog time.Duration) time.Duration {
	if soonest := now.Add(backlog); q.next.Before(soonest) {
		q.next = soonest
	}
	q.next = q.next.Add(max(q.each*5/4/time.Duration(q.workers), 20*time.Microsecond))
	if latest := now.Add(agentapi.MaxRetry); q.next.After(latest) {
		q.next = latest
		return agentapi.MaxRetry - rand.N(agentapi.MaxRetry/4)
	}
	return max(q.next.Sub(now).Round(time.Millisecond), time.Millisecond)
}

// patienceOf returns how long the sender of a message waits for the reply.
func (q *queue) patienceOf(m *nats.Msg) time.Duration {
	if ms, err := strconv.Atoi(m.Header.Get(agentapi.HeaderWait)); err == nil && ms > 0 {
		return min(time.Duration(ms)*time.Millisecond, agentapi.MaxRetry)
	}
	return q.patience
}

// work handles messages until none waits.
func (q *queue) work() {
	defer q.handled.Done()
	for {
		m, ok := q.take()
		if !ok {
			return
		}
		began := q.now()
		metrics.HostMessageWaited(q.name, began.Sub(m.arrived))
		func() {
			ctx, cancel := context.WithTimeout(context.WithValue(q.ctx, untilKey{}, m.until), handleTimeout)
			defer cancel()
			m.handle(ctx, m.msg)
		}()
		metrics.HostMessage(q.name, "handled")
		q.mu.Lock()
		q.each += (q.now().Sub(began) - q.each) / 16
		q.mu.Unlock()
	}
}

// take removes the oldest message whose sender still waits. If there is none, the calling worker must end.
func (q *queue) take() (queued, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for len(q.waiting) > 0 && !q.closed {
		m := q.waiting[0]
		q.waiting[0] = queued{} // for the garbage collector
		q.waiting = q.waiting[1:]
		if now.Before(m.until) {
			return m, true
		}
		metrics.HostMessage(q.name, "dropped")
	}
	q.waiting = nil
	q.busy--
	return queued{}, false
}

// close drops the waiting messages and all that arrive later. It does not wait for those being handled.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// untilKey is the context key of the time until which the sender of the message being handled waits.
type untilKey struct{}

// expired reports whether the sender of the message that is handled with ctx has stopped waiting.
func (l *Link) expired(ctx context.Context) bool {
	until, ok := ctx.Value(untilKey{}).(time.Time)
	return ok && l.cfg.Now().After(until)
}
