package start

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// pairs is how many pairs of instant hosts take turns: a server accepts at most ten reports a second from one host, a
// rate that no real host reaches.
const pairs = 8

// instantModel is what only the hosts of one pair have.
func instantModel(pair int) string { return fmt.Sprintf("Instant %d", pair) }

// instantHost connects to the control plane over the agent's own link and does nothing: its next report states that
// whatever was requested is done. Like an agent it applies the desired state that a wake brings, also while a report is
// under way, and reports what came of it.
type instantHost struct {
	id   id.Host
	conn *link.Conn
	boot string
	wake chan struct{}

	mu       sync.Mutex
	seq      uint64
	revision int64
	epoch    int64
	leases   map[string]agentapi.LeaseStatus
	keys     map[string]string // WireGuard keys, by lease
}

// share rents n clusters on hosts that take no time.
func (s *stack) share(ctx context.Context, n int) (whole, accept platform.Run, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range pairs * nodes {
		h, err := s.enrollInstant(ctx, i)
		if err != nil {
			return whole, accept, err
		}
		defer h.conn.Close()
		wg.Go(func() { h.run(ctx) })
	}
	if err := s.sells(ctx); err != nil {
		return whole, accept, err
	}
	began := time.Now()
	var all, accepted []time.Duration
	const warm = 2 * pairs
	for i := range n + warm {
		r, err := s.rent(ctx, fmt.Sprintf("instant-%d", i), s.spec(fmt.Sprintf("gpu_model=%q", instantModel(i%pairs))))
		if err != nil {
			return whole, accept, err
		}
		if i >= warm {
			all, accepted = append(all, r.running), append(accepted, r.accepted)
		}
	}
	took := time.Since(began)
	return platform.Summary(all, took, n, platform.CPU{}), platform.Summary(accepted, took, n, platform.CPU{}), nil
}

// sells waits until the instant hosts are for rent.
func (s *stack) sells(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	price, err := money.ParseMicro("1.00")
	if err != nil {
		return err
	}
	for {
		page, err := s.operator.Hosts.List(ctx, client.HostsQuery{PageOf: client.PageOf{Limit: 100}})
		if err != nil {
			return err
		}
		selling := 0
		for _, h := range page.Items {
			if !strings.HasPrefix(h.Name, "instant-") {
				continue
			}
			if h.Selling {
				selling++
			}
			if len(h.Offers) > 0 && h.Offers[0].Price == nil {
				if _, err := s.operator.Hosts.Change(ctx, h.ID, client.ChangeHostRequest{Price: new(price.String())}); err != nil {
					return err
				}
			}
		}
		if selling == pairs*nodes {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the instant hosts are not for rent: %w", ctx.Err())
		}
	}
}

func (s *stack) enrollInstant(ctx context.Context, i int) (*instantHost, error) {
	boot, err := hostinfo.BootID()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("instant-%d", i)
	token, err := s.operator.Hosts.CreateEnrollment(ctx, client.CreateEnrollmentRequest{Name: name, Region: "local",
		Fabric: "instant"})
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(s.dir, "tls", "ca.pem"))
	if err != nil {
		return nil, err
	}
	inv := instantInventory(name, boot, instantModel(i/nodes))
	who, err := link.Enroll(ctx, link.EnrollConfig{
		URL:       s.info.AgentURL,
		Token:     token.Token,
		CA:        ca,
		StateDir:  filepath.Join(s.dir, name),
		Inventory: inv,
	})
	if err != nil {
		return nil, fmt.Errorf("enrol %s: %w", name, err)
	}
	h := &instantHost{
		id:     who.Host,
		boot:   boot,
		wake:   make(chan struct{}, 1),
		leases: map[string]agentapi.LeaseStatus{},
		keys:   map[string]string{},
	}
	h.conn = link.New(who, slog.New(slog.DiscardHandler))
	up := make(chan struct{}, 1)
	err = h.conn.Start(link.Handlers{
		Wake: h.woken, Dial: func(agentapi.Dial) {},
		Up: func() {
			select {
			case up <- struct{}{}:
			default:
			}
			h.poke()
		},
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-up:
	case <-time.After(startLimit):
		return nil, errors.New(name + " did not connect")
	}
	return h, h.conn.Inventory(ctx, inv)
}

func instantInventory(name, boot, model string) agentapi.Inventory {
	inv := agentapi.Inventory{
		Protocol:     agentapi.Protocol,
		AgentVersion: "bench",
		BootID:       boot,
		Hostname:     name,
		OS:           "none",
		Arch:         "amd64",
		CPUCores:     64,
		RAMMB:        512 << 10,
		DiskGB:       2000,
		DiskLimited:  true,
		Driver:       "550.54",
		CUDAMax:      "12.4",
		Simulated:    true,
		AttachMode:   "none",
		MultiNode:    true,
	}
	for i := range 8 {
		inv.GPUs = append(inv.GPUs, agentapi.GPU{
			UUID:         "GPU-" + uuid.NewString(),
			Index:        i,
			PCIBus:       fmt.Sprintf("00000000:%02X:00.0", i+1),
			Model:        model,
			Architecture: "Hopper",
			VRAMMB:       81559,
			ComputeCap:   "9.0",
			Health:       "healthy",
			PCIeGenMax:   agentapi.Known(5),
		})
	}
	return inv
}

func (h *instantHost) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// woken applies the state that a wake brings, and asks for it if it brings none.
func (h *instantHost) woken(w agentapi.Wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch d := w.Desired; {
	case w.Revision <= h.revision:
	case d == nil || d.ControlEpoch != h.epoch:
		h.poke()
	default:
		h.revision = d.Revision
		if h.follow(d.Leases) {
			h.poke() // as an agent reports what it runs now
		}
	}
}

// run reports whenever it is woken and until it has nothing new to say. Without a wake it reports as often as an agent.
func (h *instantHost) run(ctx context.Context) {
	for {
		more, err := h.report(ctx)
		if err == nil && more {
			continue
		}
		again := 5 * time.Second
		if err != nil {
			again = 100 * time.Millisecond
		}
		select {
		case <-h.wake:
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// report makes one report; more says that there is something new to say.
func (h *instantHost) report(ctx context.Context) (more bool, err error) {
	s := h.sync()
	reply, err := h.conn.Sync(ctx, s)
	if err != nil || reply.Error != "" {
		return false, errors.Join(err, errors.New(reply.Error))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range s.Leases {
		if l.Gone {
			delete(h.leases, l.Lease)
			delete(h.keys, l.Lease)
		}
	}
	h.epoch = reply.ControlEpoch
	if d := reply.Desired; d != nil && d.Revision > h.revision {
		h.revision = d.Revision
		return h.follow(d.Leases), nil
	}
	return false, nil
}

// sync is a report of the present state.
func (h *instantHost) sync() agentapi.Sync {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	s := agentapi.Sync{
		Protocol:     agentapi.Protocol,
		AgentVersion: "bench",
		Capabilities: []string{agentapi.CapWakeState},
		BootID:       h.boot,
		BootMS:       hostinfo.BootMS(),
		ControlEpoch: h.epoch,
		Revision:     h.revision,
		Full:         true,
		Seq:          h.seq,
		Leases:       []agentapi.LeaseStatus{},
	}
	for _, l := range h.leases {
		s.Leases = append(s.Leases, l)
	}
	return s
}

// follow does what is wanted, and says whether that is news. The revision is reported either way.
func (h *instantHost) follow(wanted []agentapi.LeaseSpec) bool {
	before, _ := json.Marshal(h.leases)
	want := map[string]bool{}
	for _, spec := range wanted {
		want[spec.Lease] = true
		h.leases[spec.Lease] = h.status(spec)
	}
	for lease, l := range h.leases {
		if !want[lease] {
			l.State, l.Gone, l.Good, l.AtBarrier = agentapi.NodeStopped, true, false, false
			h.leases[lease] = l
		}
	}
	after, _ := json.Marshal(h.leases)
	return string(before) != string(after)
}

// status is how a lease is on a host where every step is done at once.
func (h *instantHost) status(spec agentapi.LeaseSpec) agentapi.LeaseStatus {
	st := agentapi.LeaseStatus{
		LeaseRef:    spec.LeaseRef,
		State:       agentapi.NodeJoining,
		WGKey:       h.key(spec.Lease),
		Endpoints:   []string{"127.0.0.1:51820"},
		ImageDigest: "sha256:" + strings.Repeat("0", 64),
	}
	for _, p := range spec.Network.Peers {
		if p.Key == "" {
			return st
		}
	}
	st.State = agentapi.NodeReady
	st.Preflight = &agentapi.Preflight{
		OK:        true,
		BusbwGbps: 100,
		Bytes:     8 << 20,
		Seconds:   0.001,
		RTTMicros: make([]float64, spec.Nodes),
	}
	if st.AtBarrier = !spec.Go; spec.Go {
		st.Started, st.Good, st.StartBootMS = true, true, hostinfo.BootMS()
	}
	return st
}

// key is a lease's WireGuard key, the same in every report.
func (h *instantHost) key(lease string) string {
	if h.keys[lease] == "" {
		b := make([]byte, 32)
		rand.Read(b)
		h.keys[lease] = base64.StdEncoding.EncodeToString(b)
	}
	return h.keys[lease]
}
