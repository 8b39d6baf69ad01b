package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// How long the fleet idles, and how often its hosts report and send telemetry meanwhile: as agents without leases do.
const (
	idleFor        = 30 * time.Second
	idleReport     = 60 * time.Second
	telemetryEvery = 10 * time.Second
)

// idle is what a fleet costs while nothing happens, of one core.
type idle struct {
	OwnPercent      float64 `json:"own_percent"` // with the hosts' own
	PostgresPercent float64 `json:"postgres_percent"`
	WALPerSecond    float64 `json:"wal_mb_per_second"`
	MemoryKB        float64 `json:"memory_kb"` // live heap and stacks for each host, with the host's own
}

// idle lets the hosts idle: each reports and sends telemetry of its GPUs as often as an agent.
func (c *crowd) idle(ctx context.Context, meter *platform.Meter, at string) (out idle, err error) {
	ctx, cancel := context.WithTimeout(ctx, idleFor)
	defer cancel()
	wal, err := walOf(ctx, at)
	if err != nil {
		return out, err
	}
	before, began := meter.Read(), time.Now()
	var refused atomic.Int64
	var all sync.WaitGroup
	beat := func(every time.Duration, do func(*simulated)) {
		tick := time.NewTicker(every / time.Duration(len(c.hosts)))
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % len(c.hosts) {
			select {
			case <-tick.C:
				do(c.hosts[i])
			case <-ctx.Done():
				return
			}
		}
	}
	all.Go(func() {
		beat(idleReport, func(h *simulated) {
			all.Go(func() { // not waited for
				if err := h.report(ctx); err != nil && ctx.Err() == nil {
					refused.Add(1)
				}
			})
		})
	})
	all.Go(func() { beat(telemetryEvery, func(h *simulated) { _ = h.conn.Telemetry(h.readings()) }) })
	<-ctx.Done()
	used, took := meter.Read().Sub(before), time.Since(began)
	all.Wait()
	if n := refused.Load(); n > int64(len(c.hosts))/100 {
		return out, fmt.Errorf("%d reports of an idle fleet were refused", n)
	}
	after, err := walOf(context.WithoutCancel(ctx), at)
	if err != nil {
		return out, err
	}
	out.OwnPercent, out.PostgresPercent = 100*float64(used.Own)/float64(took), 100*float64(used.Postgres)/float64(took)
	out.WALPerSecond = (after - wal) / 1e6 / took.Seconds()
	return out, nil
}

// walOf returns how many bytes of WAL the server has written.
func walOf(ctx context.Context, at string) (n float64, err error) {
	c, err := pgx.Connect(ctx, at)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(ctx) }()
	err = c.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&n)
	return n, err
}

// live returns the bytes of heap and stacks in use, after a collection.
func live() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

// readings is what an idle host's GPUs measure.
func (h *simulated) readings() (t agentapi.Telemetry) {
	util, used, power, temp := rand.IntN(3), int64(512<<20), int64(70_000+rand.IntN(2000)), 35+rand.IntN(3)
	for _, g := range h.inventory.GPUs {
		t.Samples = append(t.Samples, agentapi.GPUSample{GPU: g.UUID, AtMS: time.Now().UnixMilli(), Util: &util,
			MemUsed: &used, PowerMW: &power, TempC: &temp})
	}
	return t
}

// How commits wake hosts: on a clock, each host in turn.
const (
	wakesPerSecond = 200
	wakes          = 2000
	waking         = 16 // connections
)

// wakeTimes returns how long after its commit each of many changes of desired state was at the host's agent. A change
// raises the host's revision, as a rent does, and wakes it.
func (c *crowd) wakeTimes(ctx context.Context, d *db.DB, o *ours) ([]time.Duration, error) {
	arrived := make([]chan time.Time, len(c.hosts))
	for i, h := range c.hosts {
		arrived[i] = make(chan time.Time, 4)
		h.woken.Store(&arrived[i])
	}
	var lost atomic.Int64
	took := make([]time.Duration, wakes)
	_, err := platform.Paced(ctx, waking, wakes, wakesPerSecond, func(ctx context.Context, _, i int) error {
		h := i * 7919 % len(c.hosts)
		var committed time.Time
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			b := &pgx.Batch{}
			tx.AfterCommit(func() { committed = time.Now() }) // before the wake, which is queued next
			host.QueueRevision(b, tx, o.link.Bus(), []id.Host{c.hosts[h].id})
			return tx.Send(ctx, b)
		})
		if err != nil {
			return err
		}
		select {
		case at := <-arrived[h]:
			took[i] = at.Sub(committed)
		case <-time.After(10 * time.Second):
			lost.Add(1)
		}
		return nil
	})
	if n := lost.Load(); err == nil && n > 0 {
		err = fmt.Errorf("%d of %d wakes did not arrive", n, wakes)
	}
	return took, err
}
