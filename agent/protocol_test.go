package agent

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// agedLink is a server of a protocol: it refuses newer ones, and takes all segments.
type agedLink struct {
	protocol int
	syncs    []agentapi.Sync
}

func (l *agedLink) Sync(_ context.Context, s agentapi.Sync) (agentapi.SyncReply, error) {
	l.syncs = append(l.syncs, s)
	r := agentapi.SyncReply{Protocol: l.protocol}
	if l.protocol < 2 {
		r.Protocol = 0 // it knows no such field
	}
	if s.Protocol > l.protocol {
		r.Error = fmt.Sprintf("the agent speaks protocol %d and this server at most %d: upgrade the server first", s.Protocol,
			l.protocol)
		return r, nil
	}
	for _, seg := range s.Segments {
		r.UsageAcks = append(r.UsageAcks, agentapi.UsageAck{
			LeaseRef: agentapi.LeaseRef{Lease: seg.Lease, Epoch: seg.Epoch},
			BootID:   seg.BootID,
			Through:  seg.Seq,
		})
	}
	return r, nil
}

func (l *agedLink) Inventory(context.Context, agentapi.Inventory) error { return nil }
func (l *agedLink) Telemetry(agentapi.Telemetry) error                  { return nil }

// An agent reports to a server of the protocol before its own, loses nothing to it, and uses its own protocol once the
// server is upgraded. What a server of protocol 1 verifies of a segment does not depend on what it does not know.
func TestAnAgentReportsToAnOlderServer(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	l := &agedLink{protocol: agentapi.Protocol - 1}
	host := id.New[id.Host]()
	a, err := New(Config{
		StateDir: t.TempDir(),
		Host:     host,
		Key:      key,
		BootID:   "b1",
		BootMS:   func() int64 { return 3000 },
		Now:      time.Now,
		GPUs:     GPUs{Diagnosis: quietGPUs{}},
		Link:     l,
		Log:      slog.New(slog.DiscardHandler),
	})
	must(t, err)
	defer a.journal.Close()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	must(t, a.journal.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, BootMS: 1000, ServerMS: 5_000_000}))
	must(t, a.journal.Start(ref, 1500, nil))
	must(t, a.journal.Note(ref, journal.Condition{
		SeenBootMS: 2000,
		Up:         true,
		Deaf:       []agentapi.DeafSpan{{Rank: 1, FromBootMS: 1600}},
	}))
	for range 3 {
		_, err := a.syncOnce(t.Context())
		must(t, err)
	}
	l.protocol = agentapi.Protocol
	for range 2 {
		_, err := a.syncOnce(t.Context())
		must(t, err)
	}
	var spoken []int
	for _, s := range l.syncs {
		spoken = append(spoken, s.Protocol)
	}
	if want := []int{2, 1, 1, 1, 2}; fmt.Sprint(spoken) != fmt.Sprint(want) {
		t.Errorf("protocols %v, want %v", spoken, want)
	}
	if segs := l.syncs[1].Segments; len(segs) != 1 || segs[0].Facts == nil || len(l.syncs[2].Segments) != 0 {
		t.Fatalf("segments %+v, then %+v", segs, l.syncs[2].Segments)
	}
	seg := l.syncs[1].Segments[0]
	seg.Facts = nil
	if err := seg.Verify(host.String(), public); err != nil {
		t.Errorf("a server of protocol 1: %v", err)
	}
}

// wellGPUs have no trouble.
type wellGPUs struct{ quietGPUs }

func (wellGPUs) Health() map[string]gpu.Health { return nil }

// An agent that was restarted signs nothing new of a run before it has seen how the run is: the time in which there was
// no agent counts as it was. A run that cannot be seen for long is not up.
func TestARestartedAgentSignsNothingItHasNotSeen(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	now := time.Now()
	a, err := New(Config{
		StateDir: t.TempDir(),
		Host:     id.New[id.Host](),
		Key:      key,
		BootID:   "b1",
		BootMS:   func() int64 { return 60_000 },
		Now:      func() time.Time { return now },
		GPUs:     GPUs{Diagnosis: wellGPUs{}},
		Log:      slog.New(slog.DiscardHandler),
	})
	must(t, err)
	defer a.journal.Close()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	a.runs.mu.Lock()
	r := a.runs.add(ref, record{Spec: agentapi.LeaseSpec{LeaseRef: ref}, BootID: "b1", Started: true})
	a.runs.mu.Unlock()
	must(t, a.journal.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, BootMS: 1000, ServerMS: 5_000_000}))
	must(t, a.journal.Start(ref, 1500, nil))
	must(t, a.journal.Tick([]journal.Tick{{LeaseRef: ref, BootMS: 10_000}}))
	v := view{rec: r.rec, boot: "b1", seenBoot: 50_000, work: container.Container{State: container.Running}}
	a.attest(r, v, step{do: actStartOverlay})
	a.attest(r, v, step{})
	v.overlay = true
	a.attest(r, v, step{do: actWatch})
	if segs := a.journal.Pending(10); len(segs) != 0 {
		t.Fatalf("signed %+v", segs)
	}
	now = now.Add(takeUp)
	v.overlay = false
	a.attest(r, v, step{do: actStartOverlay})
	must(t, a.journal.End(ref, 60_000))
	segs := a.journal.Pending(10)
	if len(segs) != 2 || !segs[0].WasUp() || segs[1].WasUp() || segs[1].StartMS-segs[0].StartMS != 50_000-1500 {
		t.Errorf("signed %+v", segs)
	}
}

func (*agedLink) Volume(context.Context, agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	return agentapi.VolumeReply{}, nil
}
