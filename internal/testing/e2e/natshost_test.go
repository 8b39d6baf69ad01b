//go:build long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// linked is a host that speaks the agent's own link to the control plane and starts no containers: each step of a lease
// is done when it is wanted. It signs usage as an agent does, and keeps what is not acknowledged.
type linked struct {
	name string
	*fleettest.Agent
	conn     *link.Conn
	inv      agentapi.Inventory
	boot     string
	born     time.Time
	wake     chan struct{}
	answered atomic.Int64 // reports that were answered

	mu       sync.Mutex
	seq      uint64
	revision int64
	epoch    int64
	anchor   *agentapi.Anchor
	wanted   map[agentapi.LeaseRef]agentapi.LeaseSpec
	runs     map[agentapi.LeaseRef]*linkedRun
	journal  []agentapi.Segment
}

// linkedRun is one start of a lease.
type linkedRun struct {
	agentapi.LeaseStatus
	seq, endMS int64
	final      bool
}

// fleet is the hosts of an estate.
type fleet struct {
	hosts []*linked
	end   context.CancelFunc
	loops sync.WaitGroup
}

// newFleet enrols hosts of one GPU, sells them, and lets them connect and report until stop.
func (e *estate) newFleet(w *fleettest.World, operator account.Principal, m *market.Market, n int) *fleet {
	e.t.Helper()
	ca, err := os.ReadFile(e.certs.CA)
	w.Must(err)
	ctx, cancel := context.WithCancel(e.t.Context())
	f := &fleet{end: cancel}
	e.t.Cleanup(f.stop)
	for i := range n {
		h := &linked{name: fmt.Sprintf("host-%d", i), inv: fleettest.Inventory(1), boot: uuid.NewString(), born: time.Now(),
			wake: make(chan struct{}, 1), wanted: map[agentapi.LeaseRef]agentapi.LeaseSpec{},
			runs: map[agentapi.LeaseRef]*linkedRun{}}
		h.inv.Hostname = h.name
		h.Agent = w.AddHost(operator, h.inv, "", uint64(i))
		reply := agentapi.EnrollReply{Host: h.Host.String(), NATS: e.hosts, NATSCA: string(ca)}
		who := link.NewIdentity(h.Host, reply, h.Link, h.Attest)
		h.conn = link.New(who, slog.New(slog.DiscardHandler))
		w.Must(h.conn.Start(link.Handlers{Wake: func(agentapi.Wake) { h.poke() }, Dial: func(agentapi.Dial) {}, Up: h.poke}))
		f.hosts = append(f.hosts, h)
		f.loops.Go(func() { h.loop(ctx) })
	}
	before := make([]int64, n)
	until(e.t, "every host has reported", func() error { return f.reportedSince(before, 1) })
	for _, h := range f.hosts {
		markettest.Price(w, m, operator, h.Host, money.Micro(2_000_000))
	}
	return f
}

func (f *fleet) stop() {
	f.end()
	f.loops.Wait()
	for _, h := range f.hosts {
		h.conn.Close()
	}
	f.hosts = f.hosts[:len(f.hosts):len(f.hosts)]
}

// reports returns how many reports of each host were answered.
func (f *fleet) reports() (out []int64) {
	for _, h := range f.hosts {
		out = append(out, h.answered.Load())
	}
	return out
}

// reportedSince reports which host has not had so many reports answered since.
func (f *fleet) reportedSince(before []int64, n int64) error {
	for i, h := range f.hosts {
		if h.answered.Load() < before[i]+n {
			return fmt.Errorf("%s has not", h.name)
		}
	}
	return nil
}

// unsent returns how many segments were never acknowledged.
func (f *fleet) unsent() (n int) {
	for _, h := range f.hosts {
		h.mu.Lock()
		n += len(h.journal)
		h.mu.Unlock()
	}
	return n
}

func (h *linked) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// loop reports when there is news and every second.
func (h *linked) loop(ctx context.Context) {
	sent := false
	for ctx.Err() == nil {
		if !sent {
			sent = h.conn.Inventory(ctx, h.inv) == nil
		}
		more, err := h.report(ctx)
		if err == nil {
			h.answered.Add(1)
			if more {
				continue
			}
		}
		wait := time.Second
		var much *agentapi.TooMany
		if errors.As(err, &much) {
			wait = max(much.Wait, 50*time.Millisecond)
		}
		select {
		case <-h.wake:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// report sends a report and takes the answer. more: something is new since.
func (h *linked) report(ctx context.Context) (more bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		h.prove(r, false)
	}
	h.seq++
	s := agentapi.Sync{Protocol: agentapi.Protocol, AgentVersion: "test", BootID: h.boot, BootMS: h.bootMS(),
		ControlEpoch: h.epoch, Revision: h.revision, Full: true, Seq: h.seq, Leases: []agentapi.LeaseStatus{},
		Segments: h.journal[:min(len(h.journal), agentapi.MaxSegments)]}
	for _, r := range h.runs {
		s.Leases = append(s.Leases, r.LeaseStatus)
	}
	if len(s.Segments) >= agentapi.MinBatch {
		s.SegmentsSignature = agentapi.SignBatch(h.Host.String(), s.Segments, h.Attest)
	}
	reply, err := h.conn.Sync(ctx, s)
	if err != nil {
		return false, err
	}
	if reply.StatusAck != h.seq {
		return false, fmt.Errorf("not stored: %s", reply.Error)
	}
	if reply.Anchor != nil {
		h.anchor = reply.Anchor
	}
	h.acknowledged(reply.UsageAcks)
	for ref, r := range h.runs {
		if r.Gone {
			delete(h.runs, ref)
		}
	}
	h.epoch = reply.ControlEpoch
	if d := reply.Desired; d != nil && d.Revision > h.revision {
		h.revision = d.Revision
		clear(h.wanted)
		for _, l := range d.Leases {
			h.wanted[l.LeaseRef] = l
		}
		more = true
	}
	return h.follow() || more, nil
}

// acknowledged forgets the segments that are stored. A refused one stays: the test counts it.
func (h *linked) acknowledged(acks []agentapi.UsageAck) {
	through := map[agentapi.LeaseRef]int64{}
	for _, a := range acks {
		if a.Refused == "" {
			through[a.LeaseRef] = max(through[a.LeaseRef], a.Through)
		}
	}
	var left []agentapi.Segment
	for _, s := range h.journal {
		if s.Seq > through[agentapi.LeaseRef{Lease: s.Lease, Epoch: s.Epoch}] {
			left = append(left, s)
		}
	}
	h.journal = left
}

// follow does what is wanted and reports whether that is news.
func (h *linked) follow() (news bool) {
	for ref, r := range h.runs {
		if _, ok := h.wanted[ref]; !ok && !r.Gone {
			h.prove(r, true)
			r.State, r.Gone, r.Good = agentapi.NodeStopped, true, false
			news = true
		}
	}
	for ref, spec := range h.wanted {
		r := h.runs[ref]
		if r == nil {
			r = &linkedRun{LeaseStatus: agentapi.LeaseStatus{LeaseRef: ref, State: agentapi.NodeJoining,
				WGKey: "key-" + ref.Lease, Endpoints: []string{"192.0.2.1:51820"}, ImageDigest: "sha256:0"}}
			h.runs[ref] = r
			news = true
		}
		switch {
		case r.State == agentapi.NodeJoining && joined(spec):
			r.State, r.AtBarrier, news = agentapi.NodeReady, true, true
			r.Preflight = &agentapi.Preflight{OK: true, BusbwGbps: 10, Bytes: 1, Seconds: 1}
			for rank := range spec.Nodes {
				gbps := 10.0
				if rank == spec.Rank {
					gbps = 0
				}
				r.Preflight.PairGbps = append(r.Preflight.PairGbps, gbps)
			}
		case r.State == agentapi.NodeReady && spec.Go && !r.Started:
			r.Started, r.Good, news = true, true, true
			r.StartBootMS = h.bootMS()
			r.endMS = h.anchor.At(r.StartBootMS)
		}
	}
	return news
}

// joined reports whether every peer's key is known.
func joined(spec agentapi.LeaseSpec) bool {
	for _, p := range spec.Network.Peers {
		if p.Key == "" {
			return false
		}
	}
	return true
}

func (h *linked) bootMS() int64 { return 1_000_000 + time.Since(h.born).Milliseconds() }

// segmentEvery is the shortest time of a segment that is not final, in ms.
const segmentEvery = 2_000

// prove signs the time up to now.
func (h *linked) prove(r *linkedRun, final bool) {
	if !r.Started || r.final || h.anchor == nil {
		return
	}
	boot := h.bootMS()
	end := max(h.anchor.At(boot), r.endMS) // a newer anchor may tie the clock some ms earlier
	if !final && end < r.endMS+segmentEvery {
		return
	}
	r.seq++
	s := agentapi.Segment{Lease: r.Lease, Epoch: r.Epoch, BootID: h.boot, Seq: r.seq, Anchor: h.anchor.Number,
		BootEndMS: boot, StartMS: r.endMS, EndMS: end, Final: final}
	s.Sign(h.Host.String(), h.Attest)
	h.journal, r.endMS, r.final = append(h.journal, s), end, final
}
