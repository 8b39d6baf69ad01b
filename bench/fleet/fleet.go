// Package fleet measures the control plane with many connected hosts. The hosts are simulated; they connect and report
// with the agent's own link code. Beside it, in the same run, the same hosts do the same with a bare NATS server that
// answers every request at once.
//
// Servers and hosts share one process, so a host costs two file descriptors, and the CPU time of ours contains that of
// the hosts, as that of the baseline does.
package fleet

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/agent/link"
	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// EnvHosts is the number of simulated hosts; without it, defaultHosts.
const EnvHosts = "MUSTER_FLEET_HOSTS"

const defaultHosts = 1000

// patience limits the time until the whole fleet has reported.
const patience = 2 * time.Minute

// hosts returns how many hosts to simulate.
func hosts() (int, error) {
	s := os.Getenv(EnvHosts)
	if s == "" {
		return defaultHosts, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 50_000 {
		return 0, fmt.Errorf("%s: want a number of hosts, not %q", EnvHosts, s)
	}
	return n, nil
}

// member is a simulated host, known to the platform.
type member struct {
	platform.Host
	link nkeys.KeyPair
}

// enroll adds hosts to the database, with link keys.
func enroll(ctx context.Context, d *db.DB, n int) ([]member, error) {
	added, err := platform.AddFleet(ctx, d, platform.Fleet{Hosts: n, Operators: max(n/100, 1)})
	if err != nil {
		return nil, err
	}
	out := make([]member, n)
	ids, keys := make([]string, n), make([]string, n)
	for i, h := range added {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, err
		}
		if keys[i], err = pair.PublicKey(); err != nil {
			return nil, err
		}
		ids[i], out[i] = h.ID.UUID().String(), member{h, pair}
	}
	for _, sql := range []string{
		"UPDATE host_key k SET link_key = r.key FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::text[]) AS key) r " +
			"WHERE k.host_id = r.id",
		"UPDATE host_status SET session = 0, connected = false, last_sync_at = NULL WHERE host_id = ANY($1::uuid[]) AND " +
			"$2::text[] IS NOT NULL",
	} {
		if _, err := d.Pool.Exec(ctx, sql, ids, keys); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// simulated is a host with a connection.
type simulated struct {
	id        id.Host
	conn      *link.Conn
	woken     atomic.Pointer[chan time.Time] // receives when wakes arrive; nil: not measured
	inventory agentapi.Inventory
	boot      string
	born      time.Time
	epoch     int64
	seq       uint64
	up        chan struct{} // connected
}

// crowd is the simulated hosts of one round.
type crowd struct {
	hosts []*simulated

	late     atomic.Int64 // requests that were not answered
	refusals atomic.Int64 // requests refused with a time to come back
}

// connect starts connecting all hosts to the given address, without waiting for them.
func connect(members []member, address, ca string) (*crowd, error) {
	c := &crowd{}
	for i, m := range members {
		reply := agentapi.EnrollReply{Host: m.ID.String(), NATS: []string{address}, NATSCA: ca}
		attest := ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032d", i)))
		h := &simulated{
			id: m.ID, conn: link.New(link.NewIdentity(m.ID, reply, m.link, attest), slog.New(slog.DiscardHandler)),
			inventory: inventoryOf(m), boot: fmt.Sprintf("boot-%d", i), born: time.Now(), up: make(chan struct{}, 1),
		}
		c.hosts = append(c.hosts, h)
		err := h.conn.Start(link.Handlers{
			Wake: func(agentapi.Wake) {
				if to := h.woken.Load(); to != nil {
					*to <- time.Now()
				}
			},
			Dial: func(agentapi.Dial) {},
			Up: func() {
				select {
				case h.up <- struct{}{}:
				default:
				}
			},
		})
		if err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *crowd) close() {
	var all sync.WaitGroup
	for _, h := range c.hosts {
		all.Go(h.conn.Close)
	}
	all.Wait()
}

// arrive waits until every host has connected, and its inventory and a report have been accepted.
func (c *crowd) arrive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	var failed atomic.Int64
	for _, h := range c.hosts {
		all.Go(func() {
			select {
			case <-h.up:
			case <-ctx.Done():
				failed.Add(1)
				return
			}
			if !c.persist(ctx, func() error { return h.conn.Inventory(ctx, h.inventory) }) ||
				!c.persist(ctx, func() error { return h.report(ctx) }) {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d hosts had not reported after %v", n, len(c.hosts), patience)
	}
	return nil
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

// report sends one report of a host without leases.
func (h *simulated) report(ctx context.Context) error {
	h.seq++
	reply, err := h.conn.Sync(ctx, agentapi.Sync{
		Protocol: agentapi.Protocol, AgentVersion: "bench", BootID: h.boot, BootMS: time.Since(h.born).Milliseconds() + 1000,
		ControlEpoch: h.epoch, Full: true, Leases: []agentapi.LeaseStatus{}, Seq: h.seq,
		Capabilities: agentapi.Capabilities(),
	})
	switch {
	case err != nil:
		return err
	case reply.StatusAck != h.seq:
		return fmt.Errorf("the report was not stored: %s", reply.Error)
	}
	h.epoch = reply.ControlEpoch
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
	for i, g := range m.GPUs {
		inv.GPUs = append(inv.GPUs, agentapi.GPU{
			UUID: "GPU-" + g.UUID().String(), Index: i, PCIBus: fmt.Sprintf("00000000:%02X:00.0", i+1),
			Model: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", VRAMMB: 81559, ComputeCap: "9.0", Health: "healthy",
		})
	}
	return inv
}
