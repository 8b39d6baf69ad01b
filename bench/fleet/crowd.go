package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// simulated is a host with a connection.
type simulated struct {
	id        id.Host
	conn      *link.Conn
	woken     atomic.Int64 // when the last wake arrived, in Unix ns; 0: none did
	inventory agentapi.Inventory
	boot      string
	born      time.Time
	epoch     int64
	seq       uint64
	calm      link.Calm
	leases    []agentapi.LeaseStatus
	revision  int64
	started   chan struct{} // closed when its first attempt to connect has ended
	unusable  error         // set by then; nil: it connects, or tries again
	up        chan struct{} // connected
}

// bootOf returns the id of a host's boot.
func bootOf(m member) string { return "boot-" + m.Host.ID.String() }

// crowd is the simulated hosts of one round.
type crowd struct {
	hosts []*simulated

	late     atomic.Int64 // requests that were not answered
	refusals atomic.Int64 // requests refused with a time to come back
}

// connect starts connecting all hosts to the given address at once, without waiting for them: the first attempt of a
// host's connection is made before its start returns.
func connect(members []member, address, ca string) (*crowd, error) {
	c := &crowd{}
	for _, m := range members {
		reply := agentapi.EnrollReply{Host: m.Host.ID.String(), NATS: []string{address}, NATSCA: ca}
		key, err := nkeys.FromSeed(m.Link)
		if err != nil {
			return nil, err
		}
		h := &simulated{
			conn: link.New(link.NewIdentity(m.Host.ID, reply, key, m.Host.Key), slog.New(slog.DiscardHandler)),
			id:   m.Host.ID, inventory: inventoryOf(m), boot: bootOf(m),
			leases: []agentapi.LeaseStatus{}, born: time.Now(), up: make(chan struct{}, 1),
			started: make(chan struct{}),
		}
		c.hosts = append(c.hosts, h)
	}
	for _, h := range c.hosts {
		go h.start()
	}
	return c, nil
}

// start starts connecting.
func (h *simulated) start() {
	defer close(h.started)
	h.unusable = h.conn.Start(link.Handlers{
		Wake: func(agentapi.Wake) { h.woken.Store(time.Now().UnixNano()) },
		Dial: func(agentapi.Dial) {},
		Up: func() {
			select {
			case h.up <- struct{}{}:
			default:
			}
		},
	})
}

// arrive waits until every host has connected, and its inventory and a report have been accepted.
func (c *crowd) arrive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var all sync.WaitGroup
	var failed atomic.Int64
	for _, h := range c.hosts {
		all.Go(func() {
			err := h.connected(ctx)
			if err != nil {
				giveUp(err)
			}
			if err != nil || !c.persist(ctx, func() error { return h.conn.Inventory(ctx, h.inventory) }) ||
				!c.persist(ctx, func() error { return h.report(ctx) }) {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d hosts had not reported: %w", n, len(c.hosts), context.Cause(ctx))
	}
	return nil
}

// connected waits until the host has connected.
func (h *simulated) connected(ctx context.Context) error {
	select {
	case <-h.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	if h.unusable != nil {
		return h.unusable
	}
	select {
	case <-h.up:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// persist repeats a request as an agent does until it is accepted.
func (c *crowd) persist(ctx context.Context, request func() error) bool {
	for failures := 0; ctx.Err() == nil; {
		err := request()
		var much *agentapi.TooMany
		wait := time.Duration(0)
		switch {
		case err == nil:
			return true
		case errors.As(err, &much):
			c.refusals.Add(1)
			wait = much.Wait
		default:
			c.late.Add(1)
			wait = min(2*time.Second<<min(failures, 5), time.Minute)
			wait = wait/2 + rand.N(wait)
			failures++
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return false
}

// report sends one report: all leases are well.
func (h *simulated) report(ctx context.Context) error {
	h.seq++
	reply, err := h.conn.Sync(ctx, agentapi.Sync{
		Protocol: agentapi.Protocol, AgentVersion: "bench", BootID: h.boot, BootMS: time.Since(h.born).Milliseconds() + 1000,
		ControlEpoch: h.epoch, Full: true, Leases: h.leases, Seq: h.seq, Revision: h.revision,
		Capabilities: agentapi.Capabilities(),
	})
	switch {
	case err != nil:
		return err
	case reply.StatusAck != h.seq:
		return fmt.Errorf("the report was not stored: %s", reply.Error)
	}
	h.epoch, h.revision = reply.ControlEpoch, reply.Revision
	return nil
}

// reports lets so many hosts report at a time for d, and returns how many reports were accepted.
func (c *crowd) reports(ctx context.Context, atOnce int, d time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	var accepted, refused atomic.Int64
	for w := range atOnce {
		all.Go(func() {
			for i := w; ctx.Err() == nil && i < len(c.hosts); { // each host sends one at a time
				if err := c.hosts[i].report(ctx); err == nil {
					accepted.Add(1)
				} else if ctx.Err() == nil {
					refused.Add(1)
				}
				if i += atOnce; i >= len(c.hosts) {
					i = w
				}
			}
		})
	}
	all.Wait()
	if n := refused.Load(); n > accepted.Load()/100 {
		return 0, fmt.Errorf("%d of %d reports were refused", n, n+accepted.Load())
	}
	return accepted.Load(), nil
}

func inventoryOf(m member) agentapi.Inventory {
	inv := agentapi.Inventory{
		Protocol: agentapi.Protocol, AgentVersion: "bench", BootID: "boot", Hostname: "machine", OS: "Debian", Arch: "amd64",
		CPUCores: 64, RAMMB: 512 << 10, DiskGB: 2000, Driver: "550.54", CUDAMax: "12.4", Simulated: true, AttachMode: "none",
		MultiNode: true,
	}
	for i, g := range m.Host.GPUs {
		inv.GPUs = append(inv.GPUs, agentapi.GPU{
			UUID: "GPU-" + g.UUID().String(), Index: i, PCIBus: fmt.Sprintf("00000000:%02X:00.0", i+1),
			Model: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", VRAMMB: 81559, ComputeCap: "9.0", Health: "healthy",
		})
	}
	return inv
}

// How often the hosts of an idle fleet report, and read their GPUs: as agents without leases do.
const (
	idleReport     = 60 * time.Second
	telemetryEvery = 10 * time.Second
)

// idle lets the hosts idle: each reports as often as an agent, and sends telemetry of its GPUs when an agent would that
// has been running for long.
func (c *crowd) idle(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var refused atomic.Int64
	var all sync.WaitGroup
	for _, h := range c.hosts {
		h.calm.Sent(h.readings().Samples, time.Now().Add(-rand.N(agentapi.CalmTelemetry*9/10)))
	}
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
	all.Go(func() {
		beat(telemetryEvery, func(h *simulated) {
			t, now := h.readings(), time.Now()
			if h.calm.Due(t.Samples, now) && h.conn.Telemetry(t) == nil {
				h.calm.Sent(t.Samples, now)
			}
		})
	})
	all.Wait()
	if n := refused.Load(); n > int64(len(c.hosts))/100 {
		return fmt.Errorf("%d reports of an idle fleet were refused", n)
	}
	return nil
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
