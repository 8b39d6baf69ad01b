package model

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// mortal makes one in so many statements fail as if its server had died there; 0: none.
type mortal struct {
	oneIn atomic.Int64
	died  atomic.Int64
}

func (m *mortal) strike(ctx context.Context) context.Context {
	if n := m.oneIn.Load(); n == 0 || rand.Int64N(n) != 0 {
		return ctx
	}
	m.died.Add(1)
	dead, cancel := context.WithCancel(ctx)
	cancel()
	return dead
}

func (m *mortal) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return m.strike(ctx)
}
func (m *mortal) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (m *mortal) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return m.strike(ctx)
}
func (m *mortal) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (m *mortal) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// newMortalDB is one database twice: for those who may die in it and, calm, for those who look.
func newMortalDB(t *testing.T) (d, calm *db.DB, m *mortal) {
	t.Helper()
	url := dbtest.NewURL(t)
	calm, err := db.Open(t.Context(), db.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calm.Close)
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10
	m = &mortal{}
	cfg.ConnConfig.Tracer = m
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return db.New(pool), calm, m
}

// until repeats what dies on the way, as workers and agents do.
func (m *mortal) until(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	for {
		before := m.died.Load()
		err := f(t.Context())
		if err == nil {
			return
		}
		if m.died.Load() == before || t.Context().Err() != nil {
			t.Error(err)
			return
		}
	}
}

// Random rentals over random hosts, sent by several senders at once with repeats, in any order and batching, while
// windows move and statements die: every bill is the oracle's, and the ledger balances whenever it is read.
func TestEveryBillIsTheOracles(t *testing.T) {
	t.Parallel()
	d, calm, m := newMortalDB(t)
	want := seconds(t, 1_000_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var billed int64
	sent, looks := 0, looks{}
	for billed < want*1000 && !t.Failed() {
		span := min(2*day, max(day/8, (want*1000-billed)/6))
		hosts := newFleet(t, d, r, 3)
		var all []*rental
		for range 8 {
			all = append(all, newRental(t, d, r, hosts, span))
		}
		for range 2 {
			all = append(all, newHour(t, d, r, hosts))
		}
		m.oneIn.Store(50)
		sent += play(t, d, calm, m, &looks, r, hosts, all)
		m.oneIn.Store(0)
		if t.Failed() {
			return
		}
		for _, c := range all {
			late(t, d, c)
			billed += c.check(t, d)
			c.checkMoney(t, d)
		}
		mustBalance(t, d)
	}
	if sent > 1000 && m.died.Load() == 0 {
		t.Error("no statement died: the killer does not strike")
	}
	if sent > 1000 && (looks.open.Load() == 0 || looks.waiting.Load() == 0) {
		t.Error("no look met an open window with money that waits: it is not what runs that is judged")
	}
	t.Logf("%d rented seconds, %d segments sent, %d statements died, %d moments judged (%d with open windows, %d with "+
		"money that waits): difference 0",
		billed/1000, sent, m.died.Load(), looks.all.Load(), looks.open.Load(), looks.waiting.Load())
}

// late ends and settles a cluster, and sends then what its hosts had not sent in its life. Energy is compared before.
func late(t *testing.T, d *db.DB, c *rental) {
	t.Helper()
	came := make([][]agentapi.Segment, len(c.leases))
	for i, l := range c.leases {
		came[i], l.late = l.late, nil
	}
	c.check(t, d)
	if err := c.settle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c.mustHold(t, d)
	for i, l := range c.leases {
		for segs := came[i]; len(segs) > 0; {
			n := min(len(segs), agentapi.MaxSegments)
			if _, err := metering.NewCollector(d).Ingest(t.Context(), l.host.id, segs[:n], nil); err != nil {
				t.Fatal(err)
			}
			segs = segs[n:]
		}
		l.late, l.sent = came[i], append(l.sent, came[i]...)
	}
	if err := c.settle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	c.mustHold(t, d)
}

// looks counts the moments that were judged.
type looks struct{ all, open, waiting atomic.Int64 }

// at judges the cluster as it is now.
func (k *looks) at(t *testing.T, calm *db.DB, c *rental) {
	m := c.mustHold(t, calm)
	k.all.Add(1)
	if m.open {
		k.open.Add(1)
	}
	if m.usage.Cost > m.usage.Posted {
		k.waiting.Add(1)
	}
}

// ticks are the steps of all rentals, each one's in its order and all in a random one.
func ticks(r *rand.Rand, all []*rental) (out []func(ctx context.Context, d *db.DB) (*rental, error)) {
	var of []int // whose turn it is
	for i, c := range all {
		of = append(of, slices.Repeat([]int{i}, len(c.steps))...)
	}
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	next := make([]int, len(all))
	for _, i := range of {
		c, n := all[i], next[i]
		next[i]++
		out = append(out, func(ctx context.Context, d *db.DB) (*rental, error) { return c, c.pass(ctx, d, n) })
	}
	return out
}

// play sends everything that ever arrives, each at least once, while time passes, and has moments in between judged.
func play(t *testing.T, d, calm *db.DB, m *mortal, k *looks, r *rand.Rand, hosts []*machine, all []*rental) (sent int) {
	t.Helper()
	deliveries := deliver(r, hosts, all)
	work := make(chan []metering.Delivery)
	var senders sync.WaitGroup
	var unsent sync.Map
	for range 3 {
		senders.Go(func() {
			for batch := range work {
				m.until(t, func(ctx context.Context) error {
					acks, err := metering.IngestAll(ctx, d, batch)
					if err == nil && held(batch, acks) {
						unsent.Store(&batch[0], batch)
					}
					return err
				})
			}
		})
	}
	steps := ticks(r, all)
	clock := make(chan func(ctx context.Context, d *db.DB) (*rental, error), len(steps))
	senders.Go(func() {
		for tick := range clock {
			m.until(t, func(ctx context.Context) error {
				c, err := tick(ctx, d)
				if err == nil && !t.Failed() {
					k.at(t, calm, c)
				}
				return err
			})
		}
	})
	for left := deliveries; len(left) > 0 && !t.Failed(); {
		n := min(len(left), 1+r.IntN(4))
		for _, v := range left[:n] {
			sent += len(v.Segments)
		}
		work <- left[:n]
		if r.IntN(3) == 0 {
			work <- left[:n] // the answer was lost, and the first may still be under way
		}
		left = left[n:]
		for ; len(steps)*len(deliveries) > 0 && len(steps) > cap(clock)*len(left)/len(deliveries); steps = steps[1:] {
			// time passes as they come
			clock <- steps[0]
		}
		if r.IntN(3) == 0 {
			k.at(t, calm, all[r.IntN(len(all))])
		}
		if r.IntN(20) == 0 {
			mustBalance(t, calm)
			all[r.IntN(len(all))].checkWaiting(t, calm)
		}
	}
	for _, tick := range steps {
		clock <- tick
	}
	close(work)
	close(clock)
	senders.Wait()
	m.oneIn.Store(0)
	var waiting []metering.Delivery
	unsent.Range(func(_, v any) bool {
		waiting = append(waiting, v.([]metering.Delivery)...)
		return true
	})
	inOrder(t, d, waiting...)
	return sent
}
