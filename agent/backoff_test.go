package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// strictLink refuses so many messages as one too many, takes the next, and notes when what came until then.
type strictLink struct {
	refusals    int
	wait        time.Duration
	syncs       []agentapi.Sync
	inventories int
	at          []time.Duration
	start       time.Time
	answered    chan struct{}
}

var errOver = errors.New("the test has what it wants")

func (l *strictLink) refuse() error {
	l.at = append(l.at, time.Since(l.start))
	if l.refusals == 0 {
		close(l.answered)
		return nil
	}
	l.refusals--
	return &agentapi.TooMany{Wait: l.wait}
}

func (l *strictLink) over() bool {
	select {
	case <-l.answered:
		return true
	default:
		return false
	}
}

func (l *strictLink) Sync(_ context.Context, s agentapi.Sync) (agentapi.SyncReply, error) {
	if l.over() {
		return agentapi.SyncReply{}, errOver
	}
	l.syncs = append(l.syncs, s)
	if err := l.refuse(); err != nil {
		return agentapi.SyncReply{}, err
	}
	r := agentapi.SyncReply{StatusAck: s.Seq, TelemetryLost: 7}
	for _, seg := range s.Segments {
		r.UsageAcks = append(r.UsageAcks, agentapi.UsageAck{
			LeaseRef: agentapi.LeaseRef{Lease: seg.Lease, Epoch: seg.Epoch},
			BootID:   seg.BootID,
			Through:  seg.Seq,
		})
	}
	return r, nil
}

func (l *strictLink) Inventory(context.Context, agentapi.Inventory) error {
	if l.over() {
		return errOver
	}
	l.inventories++
	return l.refuse()
}

func (l *strictLink) Telemetry(agentapi.Telemetry) error { return nil }

// onStrictLink runs a loop of an agent, with one ended run that is not reported and one segment that is not paid yet,
// until the link has taken something. Everything that asks for a report at once asks all the while. Time is the test's
// own.
func onStrictLink(t *testing.T, loop func(*Agent, context.Context), check func(*testing.T, *Agent, *strictLink,
	string)) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &strictLink{refusals: 3, wait: 4 * time.Second, start: time.Now(), answered: make(chan struct{})}
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(Config{
			StateDir:  t.TempDir(),
			Host:      id.New[id.Host](),
			Key:       key,
			BootID:    "b1",
			BootMS:    func() int64 { return 3000 },
			Now:       time.Now,
			GPUs:      GPUs{Diagnosis: quietGPUs{}},
			Link:      l,
			Inventory: func(context.Context) agentapi.Inventory { return agentapi.Inventory{} },
			Log:       slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer a.journal.Close()
		ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
		a.runs.mu.Lock()
		a.runs.add(ref, record{
			Spec:    agentapi.LeaseSpec{LeaseRef: ref},
			Gone:    true,
			Outcome: &outcome{State: agentapi.NodeStopped},
		})
		a.runs.mu.Unlock()
		for _, err := range []error{
			a.journal.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, BootMS: 1000, ServerMS: 5_000_000}),
			a.journal.Start(ref, 1500, nil), a.journal.Tick([]journal.Tick{{
				LeaseRef: ref,
				BootMS:   2000,
			}}), a.journal.End(ref, 2500),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { loop(a, ctx); close(done) }()
		go func() {
			for pause(ctx, 10*time.Millisecond, l.answered) {
				if l.over() {
					return
				}
				poke(a.syncNow)
				poke(a.inventories.due)
			}
		}()
		<-l.answered
		cancel()
		<-done
		synctest.Wait()
		if want := []time.Duration{0, 4 * time.Second, 8 * time.Second, 12 * time.Second}; !slices.Equal(l.at, want) {
			t.Errorf("asked at %v, want %v", l.at, want)
		}
		if n := strings.Count(log.String(), "too many"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
		check(t, a, l, log.String())
	})
}

// Whatever happens on the host, an agent that receives TooMany waits exactly as long as the reply says, logs that once,
// and includes in its next report everything that was in the refused ones.
func TestAnAgentThatReportsTooOftenWaitsAndLosesNothing(t *testing.T) {
	t.Parallel()
	onStrictLink(t, (*Agent).syncLoop, func(t *testing.T, a *Agent, l *strictLink, log string) {
		for i, s := range l.syncs {
			if len(s.Leases) != 1 || !s.Leases[0].Gone || len(s.Segments) == 0 {
				t.Errorf("report %d lacks something: %+v", i, s)
			}
			if diff := cmp.Diff(l.syncs[0].Segments, s.Segments); diff != "" {
				t.Errorf("report %d has other segments than the first:\n%s", i, diff)
			}
		}
		if p := a.journal.Pending(1); len(p) != 0 {
			t.Errorf("the answer that came at last was not taken: %+v is pending", p)
		}
		if !strings.Contains(log, "messages=7") {
			t.Errorf("lost telemetry is not said:\n%s", log)
		}
	})
}

func TestAnInventoryThatIsOneTooManyWaits(t *testing.T) {
	t.Parallel()
	gpus := make(chan struct{})
	onStrictLink(t, func(a *Agent, ctx context.Context) {
		a.inventories.gpus = changingGPUs{changed: gpus}
		a.inventories.run(ctx)
	}, func(t *testing.T, _ *Agent, l *strictLink, _ string) {
		if l.inventories != 4 {
			t.Errorf("%d inventories", l.inventories)
		}
	})
}

type changingGPUs struct {
	quietGPUs
	changed chan struct{}
}

func (g changingGPUs) Changed() <-chan struct{} { return g.changed }

// An answer never silences a host for longer than a minute, and what has no wait in it is no such answer.
func TestTheWaitIsBounded(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]time.Duration{
		1:       time.Millisecond,
		59_999:  59_999 * time.Millisecond,
		60_001:  time.Minute,
		1 << 62: time.Minute,
	} {
		if much, ok := agentapi.TooManyIn(ms).(*agentapi.TooMany); !ok || much.Wait != want {
			t.Errorf("%d ms: %v", ms, much)
		}
	}
	for _, ms := range []int64{0, -1} {
		if err := agentapi.TooManyIn(ms); err != nil {
			t.Errorf("%d ms: %v", ms, err)
		}
	}
}

func (*strictLink) Volume(context.Context, agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	return agentapi.VolumeReply{}, nil
}
