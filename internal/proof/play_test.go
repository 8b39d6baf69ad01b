package proof

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/dbtest"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metering"
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

func newMortalDB(t *testing.T) (*db.DB, *mortal) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dbtest.NewURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 10
	m := &mortal{}
	cfg.ConnConfig.Tracer = m
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &db.DB{Pool: pool, Q: dbq.New(pool)}, m
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
// windows move and statements die: every bill is the oracle's, and the books balance at every moment anybody looks.
func TestEveryBillIsTheOracles(t *testing.T) {
	t.Parallel()
	d, m := newMortalDB(t)
	want := seconds(t, 10_000_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var billed int64
	sent := 0
	for billed < want*1000 && !t.Failed() {
		span := min(2*day, max(day/8, (want*1000-billed)/6))
		hosts := newFleet(t, d, r, 3)
		var all []*rental
		for range 8 {
			all = append(all, newRental(t, d, r, hosts, span))
		}
		m.oneIn.Store(50)
		sent += play(t, d, m, r, hosts, all)
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
	t.Logf("%d rented seconds, %d segments sent, %d statements died: difference 0", billed/1000, sent, m.died.Load())
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
	for i, l := range c.leases {
		for segs := came[i]; len(segs) > 0; {
			n := min(len(segs), agentapi.MaxSegments)
			if _, err := metering.Ingest(t.Context(), d, l.host.id, segs[:n]); err != nil {
				t.Fatal(err)
			}
			segs = segs[n:]
		}
		l.late, l.sent = came[i], append(l.sent, came[i]...)
	}
	if err := c.settle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// play sends everything that ever arrives, each at least once, and moves the windows meanwhile.
func play(t *testing.T, d *db.DB, m *mortal, r *rand.Rand, hosts []*machine, all []*rental) (sent int) {
	t.Helper()
	queue := map[id.Host][]agentapi.Segment{}
	for _, c := range all {
		for _, l := range c.leases {
			queue[l.host.id] = append(queue[l.host.id], l.sent...)
		}
	}
	var deliveries []metering.Delivery
	for _, h := range hosts {
		segs := queue[h.id]
		for range len(segs) / 5 { // said again
			segs = append(segs, segs[r.IntN(len(segs))])
		}
		if r.IntN(2) == 0 {
			r.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
		}
		segs = slices.Insert(segs, len(segs)/2, lies(r, h, hosts, all)...)
		for len(segs) > 0 {
			n := min(len(segs), 1+r.IntN(agentapi.MaxSegments))
			deliveries = append(deliveries, metering.Delivery{Host: h.id, Segments: segs[:n]})
			segs = segs[n:]
		}
	}
	r.Shuffle(len(deliveries), func(i, j int) { deliveries[i], deliveries[j] = deliveries[j], deliveries[i] })
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
	senders.Go(func() { // time passes
		for _, c := range all {
			for n := range c.windows {
				for _, whole := range []bool{false, true} {
					m.until(t, func(ctx context.Context) error { return c.window(ctx, d, n, whole) })
				}
			}
		}
	})
	for left := deliveries; len(left) > 0; {
		n := min(len(left), 1+r.IntN(4))
		for _, v := range left[:n] {
			sent += len(v.Segments)
		}
		work <- left[:n]
		if r.IntN(3) == 0 {
			work <- left[:n] // the answer was lost, and the first may still be under way
		}
		left = left[n:]
		if r.IntN(20) == 0 {
			m.oneIn.Store(0)
			mustBalance(t, d)
			all[r.IntN(len(all))].checkWaiting(t, d)
			m.oneIn.Store(50)
		}
	}
	close(work)
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

// inOrder sends what had to wait for gaps to be closed, as an agent does: all that it has, the oldest first, again and
// again.
func inOrder(t *testing.T, d *db.DB, deliveries ...metering.Delivery) {
	t.Helper()
	queue := map[id.Host][]agentapi.Segment{}
	for _, v := range deliveries {
		queue[v.Host] = append(queue[v.Host], v.Segments...)
	}
	for h, segs := range queue {
		slices.SortFunc(segs, func(a, b agentapi.Segment) int { return int(a.StartMS - b.StartMS) })
		for round := 0; len(segs) > 0; round++ {
			batch := []metering.Delivery{{Host: h, Segments: segs[:min(len(segs), agentapi.MaxSegments)]}}
			acks, err := metering.IngestAll(t.Context(), d, batch)
			if err != nil {
				t.Error(err)
				return
			}
			if !held(batch, acks) {
				segs = segs[len(batch[0].Segments):]
			} else if round > 1000 {
				t.Errorf("segments wait for ever: %s", told(batch, acks))
				return
			}
		}
	}
}

// told is what was answered to those that wait, in words.
func told(batch []metering.Delivery, acks [][]agentapi.UsageAck) string {
	var b strings.Builder
	for i, v := range batch {
		for _, a := range acks[i] {
			fmt.Fprintf(&b, "%s %s through %d %s; ", a.Lease, a.BootID, a.Through, a.Refused)
		}
		for _, s := range v.Segments {
			fmt.Fprintf(&b, "\n%s %s %d: %d to %d", s.Lease, s.BootID, s.Seq, s.StartMS, s.EndMS)
		}
	}
	return b.String()
}

// held says whether not everything was dealt with.
func held(batch []metering.Delivery, acks [][]agentapi.UsageAck) bool {
	type runOf struct {
		agentapi.LeaseRef
		boot string
	}
	for i, v := range batch {
		through := map[runOf]int64{}
		for _, a := range acks[i] {
			if k := (runOf{a.LeaseRef, a.BootID}); a.Refused == "" {
				through[k] = max(through[k], a.Through)
			}
		}
		for _, s := range v.Segments {
			if s.Seq < lie && s.Seq > through[runOf{agentapi.LeaseRef{Lease: s.Lease, Epoch: s.Epoch}, s.BootID}] {
				return true
			}
		}
	}
	return false
}

// lie is from where the lies are numbered.
const lie = 1_000_000

// lies are segments of which none may ever count: of another host's lease, with a signature that is not the host's or
// not of this text, from the future, from before the lease, of a start that never was, of an unknown anchor.
func lies(r *rand.Rand, h *machine, hosts []*machine, all []*rental) (out []agentapi.Segment) {
	for _, c := range all {
		for _, l := range c.leases {
			if len(l.sent) == 0 {
				continue
			}
			honest := l.sent[r.IntN(len(l.sent))]
			honest.Seq += lie
			say := func(f func(s *agentapi.Segment), key ed25519.PrivateKey) {
				s := honest
				f(&s)
				s.Sign(h.id.String(), key)
				out = append(out, s)
			}
			if l.host != h {
				say(func(*agentapi.Segment) {}, h.key)
				continue
			}
			shift := func(ms int64) func(s *agentapi.Segment) {
				return func(s *agentapi.Segment) { s.StartMS, s.EndMS, s.BootEndMS = s.StartMS+ms, s.EndMS+ms, s.BootEndMS+ms }
			}
			_, stranger, _ := ed25519.GenerateKey(nil)
			say(func(*agentapi.Segment) {}, stranger)
			say(shift(10*day), h.key)
			say(shift(-10*day), h.key)
			say(func(s *agentapi.Segment) { s.Epoch = 2 }, h.key)
			say(func(s *agentapi.Segment) { s.Anchor = 99 }, h.key)
			say(func(s *agentapi.Segment) { s.EndMS++ }, h.key)
			forged := honest
			forged.StartMS -= 1000
			out = append(out, forged)
		}
	}
	return out
}
