package agent_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// control is a control plane for tests: it wants what the test sets, commits what agents report, and validates all of
// it.
type control struct {
	t    *testing.T
	host string
	key  ed25519.PublicKey
	boot string

	mu      sync.Mutex
	down    bool
	desired agentapi.Desired
	until   map[agentapi.LeaseRef]int64
	relay   map[agentapi.LeaseRef]string // the token that comes with until; "" none
	stored  []agentapi.LeaseRef
	popular []string // sent to hosts without leases
	last    agentapi.Sync
	replies map[agentapi.LeaseRef][]agentapi.LeaseStatus // all, in order
	states  map[agentapi.LeaseRef][]agentapi.NodeState
	segs    map[agentapi.LeaseRef][]agentapi.Segment
	doubted map[agentapi.LeaseRef]bool // a run was ready and started, and yet not well
	changed chan struct{}              // closed at every report

	inventory   agentapi.Inventory // the newest
	requalified bool               // results of requests for GPUs are acknowledged
	agent       interface{ Wake(agentapi.Wake) }
	volumes     volumeServer
}

func newControl(t *testing.T, host string, key ed25519.PublicKey) *control {
	boot, err := hostinfo.BootID()
	if err != nil {
		t.Fatal(err)
	}
	return &control{
		t:       t,
		host:    host,
		key:     key,
		boot:    boot,
		desired: agentapi.Desired{ControlEpoch: 1, Revision: 1},
		changed: make(chan struct{}),
		replies: map[agentapi.LeaseRef][]agentapi.LeaseStatus{},
		states:  map[agentapi.LeaseRef][]agentapi.NodeState{},
		segs:    map[agentapi.LeaseRef][]agentapi.Segment{},
		doubted: map[agentapi.LeaseRef]bool{},
		until:   map[agentapi.LeaseRef]int64{},
		relay:   map[agentapi.LeaseRef]string{},
	}
}

func (c *control) Sync(_ context.Context, s agentapi.Sync) (agentapi.SyncReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return agentapi.SyncReply{}, fmt.Errorf("no server")
	}
	c.last = s
	for _, l := range s.Leases {
		c.replies[l.LeaseRef] = append(c.replies[l.LeaseRef], l)
		if l.Started && !l.Good && (l.State != agentapi.NodeStopping && l.ExitCode == nil && l.Reason == "") {
			c.doubted[l.LeaseRef] = true
		}
		if seen := c.states[l.LeaseRef]; len(seen) == 0 || seen[len(seen)-1] != l.State {
			c.states[l.LeaseRef] = append(seen, l.State)
		}
	}
	reply := agentapi.SyncReply{
		ControlEpoch: c.desired.ControlEpoch,
		Revision:     c.desired.Revision,
		StatusAck:    s.Seq,
		LogsStored:   c.stored,
		Anchor:       &agentapi.Anchor{BootID: c.boot, Number: 1, BootMS: 0, ServerMS: 1_000_000_000},
	}
	for _, seg := range s.Segments {
		c.take(seg)
		reply.UsageAcks = append(reply.UsageAcks, agentapi.UsageAck{
			LeaseRef: agentapi.LeaseRef{Lease: seg.Lease, Epoch: seg.Epoch},
			BootID:   seg.BootID,
			Through:  seg.Seq,
		})
	}
	if len(s.Leases) == 0 {
		reply.Popular = c.popular
	}
	for ref, until := range c.until {
		reply.Extensions = append(reply.Extensions, agentapi.LeaseExtension{
			LeaseRef:   ref,
			RunUntilMS: until,
			RelayToken: c.relay[ref],
		})
	}
	if c.requalified {
		reply.RequalifyAck = s.Seq
	}
	if s.Revision < c.desired.Revision {
		d := c.desired
		reply.Desired = &d
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return reply, nil
}

// take checks that segments are signed and follow each other.
func (c *control) take(seg agentapi.Segment) {
	if err := seg.Verify(c.host, c.key); err != nil {
		c.t.Errorf("segment %+v: %v", seg, err)
	}
	ref := agentapi.LeaseRef{Lease: seg.Lease, Epoch: seg.Epoch}
	all := c.segs[ref]
	switch {
	case seg.Seq <= int64(len(all)):
		return
	case seg.Seq != int64(len(all))+1 || (len(all) > 0 && all[len(all)-1].EndMS != seg.StartMS):
		c.t.Errorf("segment %+v does not follow %+v", seg, all)
	}
	c.segs[ref] = append(all, seg)
}

func (c *control) Inventory(_ context.Context, inv agentapi.Inventory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inventory = inv
	return nil
}

func (c *control) Telemetry(agentapi.Telemetry) error { return nil }

// problem returns a problem of the newest inventory by its code.
func (c *control) problem(code string) (agentapi.Problem, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.inventory.Problems, func(p agentapi.Problem) bool { return p.Code == code })
	if i < 0 {
		return agentapi.Problem{}, false
	}
	return c.inventory.Problems[i], true
}

// requalify makes requests for GPUs part of the desired state.
func (c *control) requalify(orders ...agentapi.GPUOrder) {
	c.mu.Lock()
	c.desired.Requalify = orders
	c.mu.Unlock()
	c.want()
}

// acknowledgeRequalified makes the server store the results that it receives from now on.
func (c *control) acknowledgeRequalified() {
	c.set(func() { c.requalified = true })
	c.want()
}

// volumeServer answers requests about volumes.
type volumeServer interface {
	Serve(context.Context, agentapi.VolumeRequest) (agentapi.VolumeReply, error)
}

// Volume is the platform's of the test; without one no volume exists.
func (c *control) Volume(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	c.mu.Lock()
	p, down := c.volumes, c.down
	c.mu.Unlock()
	if down || p == nil {
		return agentapi.VolumeReply{}, fmt.Errorf("no server")
	}
	reply, err := p.Serve(ctx, q)
	if err == nil && reply.Error != nil {
		err = reply.Error
	}
	return reply, err
}

// want changes the desired state and wakes the agent.
func (c *control) want(specs ...agentapi.LeaseSpec) {
	c.mu.Lock()
	c.desired.Revision++
	for _, old := range c.desired.Leases { // the server sends what they need until their volumes are closed
		if !slices.ContainsFunc(specs, func(s agentapi.LeaseSpec) bool { return s.LeaseRef == old.LeaseRef }) {
			l := agentapi.EndingLease{LeaseRef: old.LeaseRef}
			for _, m := range old.Mounts {
				l.Keys = append(l.Keys, agentapi.VolumeKey{Volume: m.Volume, Key: m.Key})
			}
			c.desired.Ending = append(c.desired.Ending, l)
		}
	}
	c.desired.Leases = specs
	w, a := agentapi.Wake{Revision: c.desired.Revision}, c.agent
	c.mu.Unlock()
	if a != nil {
		a.Wake(w)
	}
}

// await waits for a report in which ok holds for a run: the last one, or a later one. It misses none, however fast they
// follow each other.
func (c *control) await(ref agentapi.LeaseRef, what string, ok func(agentapi.LeaseStatus) bool) agentapi.LeaseStatus {
	c.t.Helper()
	deadline := time.NewTimer(90 * time.Second)
	defer deadline.Stop()
	c.mu.Lock()
	next := len(c.replies[ref])
	listed := slices.ContainsFunc(c.last.Leases, func(l agentapi.LeaseStatus) bool { return l.LeaseRef == ref })
	if listed || next > 0 && gone(c.replies[ref][next-1]) {
		next--
	}
	c.mu.Unlock()
	var last agentapi.LeaseStatus
	for {
		c.mu.Lock()
		news, changed := c.replies[ref][next:], c.changed
		c.mu.Unlock()
		for _, st := range news {
			if ok(st) {
				return st
			}
			if last = st; st.Gone {
				c.t.Fatalf("%s is gone and never was %s: %s", ref, what, replies(st))
			}
		}
		next += len(news)
		select {
		case <-changed:
		case <-deadline.C:
			c.t.Fatalf("%s never was %s; last said: %s", ref, what, replies(last))
		}
	}
}

// awaitReport waits until a whole report is as asked.
func (c *control) awaitReport(what string, ok func(agentapi.Sync) bool) {
	c.t.Helper()
	deadline := time.NewTimer(90 * time.Second)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		last, changed := c.last, c.changed
		c.mu.Unlock()
		if ok(last) {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			said, _ := json.Marshal(last)
			c.t.Fatalf("no report with %s; last: %s", what, said)
		}
	}
}

// awaitUsage waits until a run's usage is there to its end: its last segment may come after the word that it is gone.
func (c *control) awaitUsage(ref agentapi.LeaseRef) {
	c.t.Helper()
	c.awaitReport("usage to its end", func(agentapi.Sync) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		segs := c.segs[ref]
		return len(segs) > 0 && segs[len(segs)-1].Final
	})
}

func (c *control) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func ready(st agentapi.LeaseStatus) bool   { return st.State == agentapi.NodeReady && st.AtBarrier }
func running(st agentapi.LeaseStatus) bool { return st.Started && st.Good }
func gone(st agentapi.LeaseStatus) bool    { return st.Gone }
func done(st agentapi.LeaseStatus) bool    { return st.ExitCode != nil && st.LogKept }

// gpus are none.
type gpus struct{ changed chan struct{} }

func (g gpus) parts() agent.GPUs {
	return agent.GPUs{Devices: g, Diagnosis: g, Telemetry: g, Owners: g, Leases: g, Checks: g, Resets: g}
}

func (gpus) Sample(context.Context, ...string) (gpu.Batch, error) { return gpu.Batch{}, nil }
func (gpus) EnergyMJ(context.Context, ...string) (map[string]int64, error) {
	return map[string]int64{}, nil
}
func (gpus) DeviceNodes(...string) []string                     { return nil }
func (gpus) NoteBefore(context.Context, ...string) error        { return nil }
func (gpus) WaitClean(context.Context, ...string) error         { return nil }
func (gpus) InUse(context.Context, ...string) map[string]string { return nil }
func (gpus) LeasedBy(func() map[string]bool)                    {}
func (gpus) OwnerUse() map[string]int64                         { return nil }
func (gpus) Record(gpucheck.Result, ...string)                  {}
func (gpus) Due() []string                                      { return nil }
func (gpus) WatchLinks(context.Context, ...string)              {}
func (gpus) CheckedBy(func(context.Context, string) error)      {}
func (gpus) Requalify(context.Context, string) error            { return nil }
func (gpus) Health() map[string]gpu.Health                      { return nil }
func (gpus) Pending() []agentapi.HealthEvent                    { return nil }
func (gpus) Ack(uint64) error                                   { return nil }
func (g gpus) Changed() <-chan struct{}                         { return g.changed }

// replies is a status in full: its own String names the lease only.
func replies(st agentapi.LeaseStatus) string {
	b, err := json.Marshal(st)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
