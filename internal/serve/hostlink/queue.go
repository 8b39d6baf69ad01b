package hostlink

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
)

const (
	// maxBacklog is how much work a queue of hosts' messages accepts, if their senders wait for at least twice as long.
	// Senders of further messages are asked to come back later.
	maxBacklog = 2 * time.Second
	// maxQueued limits the memory of a queue whose messages are handled quickly.
	maxQueued = 20_000
	// maxQueuedPerHost limits how many messages of one host wait. An agent sends its next report or inventory after the
	// reply to the last one, and at most one telemetry message a second.
	maxQueuedPerHost = 8
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
	longest  time.Duration // how much work is accepted, as time until a new message would be handled
	// refuse makes the sender of a message send it again after wait. nil: the message is dropped.
	refuse func(m *nats.Msg, wait time.Duration)
	now    func() time.Time
}

// queue handles messages of one kind, at most workers at a time. Each host has a line of its own, in order of arrival,
// and the lines take turns: a host that floods the queue delays another host by at most one message per turn.
//
// The queue stays short under overload. A message whose sender no longer waits is dropped instead of handled. If a new
// message would wait too long, its sender gets the time after which to send it again; so does a host of which
// maxQueuedPerHost messages wait. Those times are spread at the rate at which messages are handled, so that refused
// senders do not all come back together.
type queue struct {
	queueConfig
	handled sync.WaitGroup // running workers

	mu     sync.Mutex
	closed bool
	busy   int // running workers
	size   int // waiting messages
	lines  map[id.Host]*line
	turns  []*line       // the lines, in the order of their turns
	each   time.Duration // moving average of the time to handle one message
	next   time.Time     // time given to the sender that was refused last
}

// line is the waiting messages of one host, oldest first; it is never empty. The platform's own messages share the line
// of the zero host.
type line struct {
	host    id.Host
	waiting []queued
}

// queued is a message that waits.
type queued struct {
	msg     *nats.Msg
	arrived time.Time
	until   time.Time // the sender waits until then
	handle  func(context.Context, *nats.Msg)
}

func newQueue(c queueConfig) *queue {
	return &queue{queueConfig: c, each: firstEstimate, lines: map[id.Host]*line{}}
}

// add queues a message or refuses it. from is the host that sent it; the zero host stands for the platform. It never
// blocks.
func (q *queue) add(from id.Host, m *nats.Msg, handle func(context.Context, *nats.Msg)) {
	now, patience := q.now(), q.patienceOf(m)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	if backlog := q.backlog(from); backlog > min(q.longest, patience/2) || q.full(from) {
		wait := q.comeBack(now, backlog)
		q.mu.Unlock()
		metrics.HostMessage(q.name, "refused")
		if q.refuse != nil {
			q.refuse(m, wait)
		}
		return
	}
	q.put(from, queued{msg: m, arrived: now, until: now.Add(patience), handle: handle})
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

// put adds a message to its host's line. Callers hold q.mu.
func (q *queue) put(from id.Host, m queued) {
	l := q.lines[from]
	if l == nil {
		l = &line{host: from}
		q.lines[from] = l
		q.turns = append(q.turns, l)
	}
	l.waiting = append(l.waiting, m)
	q.size++
}

// full reports whether no further message of a host may wait. Callers hold q.mu.
func (q *queue) full(from id.Host) bool {
	return q.size >= maxQueued || from != id.Host{} && q.waitingOf(from) >= maxQueuedPerHost
}

// waitingOf returns how many messages of a host wait. Callers hold q.mu.
func (q *queue) waitingOf(from id.Host) int {
	if l := q.lines[from]; l != nil {
		return len(l.waiting)
	}
	return 0
}

// behind reports whether a new message would wait for longer than d.
func (q *queue) behind(d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.backlog(id.Host{}) > d
}

// backlog estimates when a message that arrives now would be handled. Before it, each line has as many turns as the
// host's own line has messages, and one more. Callers hold q.mu.
func (q *queue) backlog(from id.Host) time.Duration {
	if q.busy < q.workers {
		return 0
	}
	ahead := min(q.size, len(q.lines)*(q.waitingOf(from)+1))
	return time.Duration(ahead+1) * q.each / time.Duration(q.workers)
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
		h := &handling{until: m.until}
		func() {
			ctx, cancel := context.WithTimeout(context.WithValue(q.ctx, handlingKey{}, h), handleTimeout)
			defer cancel()
			m.handle(ctx, m.msg)
		}()
		metrics.HostMessage(q.name, "handled")
		q.mu.Lock()
		q.each += (max(q.now().Sub(began)-h.idle, 0) - q.each) / 16
		q.mu.Unlock()
	}
}

// take removes the next message whose sender still waits. If there is none, the calling worker must end.
func (q *queue) take() (queued, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for q.size > 0 && !q.closed {
		if m := q.turn(); now.Before(m.until) {
			return m, true
		}
		metrics.HostMessage(q.name, "dropped")
	}
	q.turns, q.size = nil, 0
	clear(q.lines)
	q.busy--
	return queued{}, false
}

// turn removes the oldest message of the line whose turn it is. Callers hold q.mu; a message waits.
func (q *queue) turn() queued {
	l := q.turns[0]
	q.turns[0] = nil // for the garbage collector
	q.turns = q.turns[1:]
	m := l.waiting[0]
	l.waiting[0] = queued{}
	l.waiting = l.waiting[1:]
	q.size--
	if len(l.waiting) > 0 {
		q.turns = append(q.turns, l)
	} else {
		delete(q.lines, l.host)
	}
	return m
}

// close drops the waiting messages and all that arrive later. It does not wait for those being handled.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// handling is a message that is being handled.
type handling struct {
	until time.Time     // its sender waits until then
	idle  time.Duration // time that the handler spent waiting for other messages
}

// handlingKey is the context key of the *handling.
type handlingKey struct{}

// expired reports whether the sender of the message that is handled with ctx has stopped waiting.
func (l *Link) expired(ctx context.Context) bool {
	h, ok := ctx.Value(handlingKey{}).(*handling)
	return ok && l.cfg.Now().After(h.until)
}

// idled excludes d from the time that it took to handle the message of ctx: the handler waited for other messages.
func idled(ctx context.Context, d time.Duration) {
	if h, ok := ctx.Value(handlingKey{}).(*handling); ok {
		h.idle += d
	}
}
