package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/id"
)

const patience = time.Minute

// open is two replicas' buses, and the second one's connection.
func open(t *testing.T) (a, b *bus.Bus, second *nats.Conn) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(ns.Shutdown)
	if !ns.ReadyForConnections(patience) {
		t.Fatal("NATS did not start")
	}
	connect := func() *nats.Conn {
		nc, err := nats.Connect(ns.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	one, two := connect(), connect()
	return bus.New(one, one), bus.New(two, two), two
}

func next[T any](t *testing.T, c <-chan T) (T, bool) {
	t.Helper()
	select {
	case v, ok := <-c:
		return v, ok
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestChangesReachWhoWatchesAndAreNotHeaped(t *testing.T) {
	t.Parallel()
	a, b, second := open(t)
	cl, org := bus.TopicCluster(id.New[id.Cluster]()), bus.TopicOrg(id.New[id.Org]())
	ctx, cancel := context.WithCancel(t.Context())
	changes := b.Watch(ctx, cl, org)
	a.Changed(bus.TopicCluster(id.New[id.Cluster]())) // someone else's
	for range 1000 {
		a.Changed(cl)
	}
	a.Changed(org)
	a.Dial(t.Context(), id.New[id.Host](), agentapi.Dial{}) // the server answers it after all that was said before
	heard := make(chan struct{})
	if err := errors.Join(second.Flush(), second.Barrier(func() { close(heard) })); err != nil {
		t.Fatal(err)
	}
	next(t, heard)
	seen := 0
	for {
		c, _ := next(t, changes)
		seen++
		if c.Topic == org {
			break
		}
		if c.Topic != cl {
			t.Fatalf("%+v", c)
		}
	}
	if seen > 3 { // the one it was waiting with, and what has become one since
		t.Errorf("a slow reader got %d changes", seen)
	}
	cancel()
	for {
		if _, ok := next(t, changes); !ok {
			break
		}
	}
}

func TestDialKnowsWhetherTheHostIsThere(t *testing.T) {
	t.Parallel()
	a, _, nc := open(t)
	h := id.New[id.Host]()
	if err := a.Dial(t.Context(), h, agentapi.Dial{}); !errors.Is(err, bus.ErrAway) {
		t.Errorf("nobody listens: %v", err)
	}
	got := make(chan *nats.Msg, 1)
	if _, err := nc.ChanSubscribe(agentapi.SubjectDial(h.String()), got); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Dial(ctx, h, agentapi.Dial{Ticket: "t"}) }()
	next(t, got)
	cancel()
	if err, _ := next(t, done); errors.Is(err, bus.ErrAway) || err == nil {
		t.Errorf("stood by: %v", err)
	}
}

func TestANilBusIsQuiet(t *testing.T) {
	t.Parallel()
	var b *bus.Bus
	b.Wake(id.New[id.Host](), 1)
	b.WatchHost(id.New[id.Host]())
	b.Changed("x")
	if err := b.Dial(t.Context(), id.New[id.Host](), agentapi.Dial{}); !errors.Is(err, bus.ErrAway) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes, samples := b.Watch(ctx, "x"), b.WatchTelemetry(ctx, id.New[id.Host]())
	cancel()
	if _, ok := next(t, changes); ok {
		t.Error("a change")
	}
	if _, ok := next(t, samples); ok {
		t.Error("a sample")
	}
}
