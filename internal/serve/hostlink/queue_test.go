package hostlink

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// gated is a queue with one worker, which handles a message whenever the test allows it, and a clock that the test
// moves.
type gated struct {
	*queue
	t       *testing.T
	now     atomic.Int64  // unix ms
	started chan struct{} // a message is being handled
	allow   chan struct{}
	handled chan string
	refused []time.Duration
}

func newGated(t *testing.T) *gated {
	g := &gated{t: t, started: make(chan struct{}, 100), allow: make(chan struct{}), handled: make(chan string, 100)}
	g.queue = newQueue(queueConfig{
		ctx: t.Context(), name: "test", workers: 1, patience: 10 * time.Second, longest: maxBacklog,
		refuse: func(_ *nats.Msg, wait time.Duration) { g.refused = append(g.refused, wait) },
		now:    func() time.Time { return time.UnixMilli(g.now.Load()) },
	})
	t.Cleanup(func() {
		g.close()
		close(g.allow)
		g.queue.handled.Wait()
	})
	return g
}

// send adds a message of a host that has sent no other. The host waits for the given time; 0: it does not say so.
func (g *gated) send(name string, wait time.Duration) { g.sendFrom(id.New[id.Host](), name, wait) }

func (g *gated) sendFrom(from id.Host, name string, wait time.Duration) {
	m := &nats.Msg{Subject: name}
	if wait > 0 {
		m.Header = nats.Header{agentapi.HeaderWait: {strconv.FormatInt(wait.Milliseconds(), 10)}}
	}
	g.add(from, m, func(_ context.Context, m *nats.Msg) {
		g.started <- struct{}{}
		<-g.allow
		g.handled <- m.Subject
	})
}

func TestQueue_DropsWhatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.send("first", 0)
	<-g.started
	g.send("short", 3*time.Second)
	g.send("unsaid", 0)
	g.send("long", 60*time.Second)
	g.now.Add(10_000)
	g.send("new", 0)
	for _, want := range []string{"first", "long", "new"} {
		g.allow <- struct{}{}
		if got := <-g.handled; got != want {
			t.Fatalf("handled %s, want %s", got, want)
		}
	}
}

func TestQueue_RefusesMoreThanTwoSecondsOfWork(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.each = 500 * time.Millisecond
	g.send("handled", 0)
	<-g.started
	for range 4 { // the next one would begin after 2.5 s
		g.send("accepted", 0)
	}
	for range 10 {
		g.send("refused", 0)
	}
	if len(g.refused) != 10 || g.size > 4 {
		t.Fatalf("%d refused, %d wait", len(g.refused), g.size)
	}
	if first := g.refused[0]; first < 2*time.Second || first > 4*time.Second {
		t.Errorf("the first comes back after %v: want when the queue is empty", first)
	}
	for i, wait := range g.refused[1:] {
		if apart := wait - g.refused[i]; apart != 625*time.Millisecond {
			t.Errorf("two come back %v apart, want 625ms", apart)
		}
	}
	for range 1000 {
		g.send("refused", 0)
	}
	if longest := slices.Max(g.refused); longest > agentapi.MaxRetry {
		t.Errorf("one is sent away for %v", longest)
	}
}

// A host that floods the queue waits for itself: others are handled as if it had sent one message.
func TestQueue_HostsTakeTurns(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	flooder, other, third := id.New[id.Host](), id.New[id.Host](), id.New[id.Host]()
	g.sendFrom(flooder, "first", 0)
	<-g.started
	for _, name := range []string{"flood 1", "flood 2", "flood 3"} {
		g.sendFrom(flooder, name, 0)
	}
	g.sendFrom(other, "other 1", 0)
	g.sendFrom(other, "other 2", 0)
	g.sendFrom(third, "third", 0)
	for _, want := range []string{"first", "flood 1", "other 1", "third", "flood 2", "other 2", "flood 3"} {
		g.allow <- struct{}{}
		if got := <-g.handled; got != want {
			t.Fatalf("handled %s, want %s", got, want)
		}
	}
}

// Only a limited number of one host's messages wait; others are not refused because of them.
func TestQueue_AHostHasLimitedRoom(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	flooder := id.New[id.Host]()
	g.send("handled", 0)
	<-g.started
	for range maxQueuedPerHost + 3 {
		g.sendFrom(flooder, "flood", 0)
	}
	if len(g.refused) != 3 || g.size != maxQueuedPerHost {
		t.Errorf("%d refused, %d wait; want 3 and %d", len(g.refused), g.size, maxQueuedPerHost)
	}
	g.send("other", 0)
	if len(g.refused) != 3 || g.size != maxQueuedPerHost+1 {
		t.Errorf("another host: %d refused, %d wait", len(g.refused), g.size)
	}
}

// Whether a host's message is accepted depends on the turns before it, not on what others have heaped up.
func TestQueue_AFloodRefusesOnlyItsSender(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	g.each = 500 * time.Millisecond
	flooder := id.New[id.Host]()
	g.send("handled", 0)
	<-g.started
	for range 4 { // a further one would begin after 2.5 s
		g.sendFrom(flooder, "flood", 0)
	}
	g.sendFrom(flooder, "flood", 0)
	if len(g.refused) != 1 {
		t.Fatalf("%d of the flood are refused, want 1", len(g.refused))
	}
	g.send("other", 0)
	if len(g.refused) != 1 {
		t.Error("another host is refused because of the flood")
	}
}

// An overload of ten times what is handled while a sender waits heals: every sender that obeys is answered, and the
// handler does almost nothing for senders that have given up.
func TestQueue_AnOverloadHeals(t *testing.T) {
	t.Parallel()
	const (
		senders = 2000
		workers = 2
		each    = 4 * time.Millisecond // so 500 a second
		wait    = 400 * time.Millisecond
	)
	nc := bareNATS(t)
	var waiting [senders]atomic.Bool
	var handled, unasked, refusals atomic.Int64
	q := newQueue(queueConfig{
		ctx: t.Context(), name: "test", workers: workers, patience: wait, longest: maxBacklog, now: time.Now,
		refuse: func(m *nats.Msg, wait time.Duration) {
			refusals.Add(1)
			data, err := json.Marshal((&agentapi.TooMany{Wait: wait}).Ack())
			if err == nil {
				err = m.Respond(data)
			}
			if err != nil {
				t.Error(err)
			}
		},
	})
	t.Cleanup(func() {
		q.close()
		q.handled.Wait()
	})
	if _, err := nc.QueueSubscribe("ask", "q", func(m *nats.Msg) {
		q.add(id.New[id.Host](), m, func(_ context.Context, m *nats.Msg) {
			handled.Add(1)
			if n, err := strconv.Atoi(string(m.Data)); err != nil || !waiting[n].Load() {
				unasked.Add(1)
			}
			<-time.After(each) // stands for the database
			_ = m.Respond([]byte("{}"))
		})
	}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() { sendUntilAnswered(t, nc, i, &waiting[i], wait) })
	}
	all.Wait()
	if refusals.Load() == 0 {
		t.Error("nobody was refused: this was no overload")
	}
	if n := handled.Load(); unasked.Load() > n/10 || n > senders*3/2 {
		t.Errorf("%d handled for %d senders, %d of them for nobody", n, senders, unasked.Load())
	}
}

// sendUntilAnswered sends a request as an agent does, until it is answered.
func sendUntilAnswered(t *testing.T, nc *nats.Conn, i int, waiting *atomic.Bool, wait time.Duration) {
	m := &nats.Msg{Subject: "ask", Data: []byte(strconv.Itoa(i)), Header: nats.Header{}}
	m.Header.Set(agentapi.HeaderWait, strconv.FormatInt(wait.Milliseconds(), 10))
	for again := wait; t.Context().Err() == nil; {
		waiting.Store(true)
		reply, err := nc.RequestMsg(m, wait)
		waiting.Store(false)
		var ack agentapi.Ack
		if err == nil {
			err = json.Unmarshal(reply.Data, &ack)
		}
		switch {
		case err == nil && ack.RetryMS == 0:
			return
		case err == nil:
			again = time.Duration(ack.RetryMS) * time.Millisecond
		default:
			again *= 2
		}
		<-time.After(again)
	}
}

// bareNATS is a connection to a NATS server of the test.
func bareNATS(t *testing.T) *nats.Conn {
	t.Helper()
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(time.Minute) {
		t.Fatal("NATS does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// While hosts' reports are refused, the platform's own message is late by as much, so that the time counts as a gap.
func TestQueue_APulseWaitsAsLongAsAHost(t *testing.T) {
	t.Parallel()
	l := &Link{ctx: t.Context(), limits: newLimits(time.Now), cfg: Config{Now: time.Now}}
	l.makeQueues()
	l.reports.busy, l.reports.each = l.reports.workers, time.Hour // whatever comes is refused
	waiting := func() int {
		l.reports.mu.Lock()
		defer l.reports.mu.Unlock()
		return l.reports.size
	}
	pulse := &nats.Msg{Subject: subjectPulse}
	l.reports.add(id.Host{}, pulse, l.handlePulse)
	if waiting() != 0 {
		t.Fatal("a pulse passes by the reports")
	}
	l.reports.mu.Lock()
	l.reports.each = 0 // there is room again
	l.reports.mu.Unlock()
	l.postpone(pulse, time.Millisecond)
	for waiting() == 0 {
		<-time.After(time.Millisecond)
	}
}

// The time that a handler spends waiting for other messages does not count as load.
func TestQueue_WaitingForOthersIsNoLoad(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	for range 20 {
		g.add(id.New[id.Host](), &nats.Msg{}, func(ctx context.Context, _ *nats.Msg) {
			g.now.Add(1000)
			idled(ctx, time.Second)
		})
	}
	g.queue.handled.Wait()
	if g.each > firstEstimate {
		t.Errorf("a message is estimated to take %s", g.each)
	}
}
