package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// reports is a control plane that counts the reports that it receives, and keeps the last one.
type reports struct {
	mu       sync.Mutex
	n        int
	last     agentapi.Sync
	received chan struct{} // of length 1
}

func (l *reports) Sync(_ context.Context, s agentapi.Sync) (agentapi.SyncReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.last = l.n+1, s
	poke(l.received)
	return agentapi.SyncReply{StatusAck: s.Seq, ControlEpoch: 1}, nil
}
func (*reports) Inventory(context.Context, agentapi.Inventory) error { return nil }
func (*reports) Telemetry(agentapi.Telemetry) error                  { return nil }

// until waits for a report in which every lease is as asked, and returns how many there were.
func (l *reports) until(t *testing.T, leases int, ok func(agentapi.Progress) bool) int {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		l.mu.Lock()
		n, well := l.n, 0
		for _, st := range l.last.Leases {
			if ok(st.Progress) {
				well++
			}
		}
		l.mu.Unlock()
		if well == leases {
			return n
		}
		select {
		case <-l.received:
		case <-deadline:
			t.Fatalf("after %d reports %d of %d leases are as they should be", n, well, leases)
		}
	}
}

func newReporter(t *testing.T, leases int) (*Agent, *reports, []*run) {
	t.Helper()
	link := &reports{received: make(chan struct{}, 1)}
	a, err := New(Config{
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 1 },
		Now:      time.Now,
		GPUs:     sickGPUs{}.parts(),
		Link:     link,
		Log:      slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(func() { must(t, a.journal.Close()) })
	var runs []*run
	for range leases {
		ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
		runs = append(runs, a.runs.add(ref, record{Spec: agentapi.LeaseSpec{LeaseRef: ref}}))
	}
	return a, link, runs
}

func (a *Agent) progress(r *run, p agentapi.Progress) {
	a.runs.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus { st.Progress = p; return st })
}

// Another step is reported at once, however short ago the last report was.
func TestAStepIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	a, _, runs := newReporter(t, 1)
	for i, step := range []string{"manifest", "layers", "guest", "overlay", "peers"} {
		a.progress(runs[0], agentapi.Progress{Step: step})
		select {
		case <-a.syncNow:
		default:
			t.Fatalf("step %d, %s, waits", i, step)
		}
	}
}

// What is not worth a report by itself is reported a second after the last one: a number that moves no more is not left
// behind, and many that move make one report a second.
func TestTheLastNumberIsReported(t *testing.T) {
	t.Parallel()
	a, link, runs := newReporter(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { a.syncLoop(ctx) })
	defer loop.Wait()
	defer cancel()
	const last = 2000
	began := time.Now()
	for i := range int64(last + 1) {
		a.progress(runs[0], agentapi.Progress{Step: "layers", Done: i, Total: last})
	}
	n := link.until(t, 1, func(p agentapi.Progress) bool { return p.Done == last })
	if most := 3 + int(time.Since(began)/progressEvery); n > most { // the loop's first, the step's, and a last one
		t.Errorf("%d reports of numbers in %v", n, time.Since(began))
	}
}

// However fast the steps of many leases follow each other, the last step of each is reported, and the control plane
// receives no more reports than the limit allows.
func TestManyStepsAreReportedTogether(t *testing.T) {
	t.Parallel()
	const leases, steps = 8, 200
	a, link, runs := newReporter(t, leases)
	ctx, cancel := context.WithCancel(t.Context())
	var loop, workers sync.WaitGroup
	began := time.Now()
	loop.Go(func() { a.syncLoop(ctx) })
	defer loop.Wait()
	defer cancel()
	for _, r := range runs {
		workers.Go(func() {
			for i := range steps {
				a.progress(r, agentapi.Progress{Step: fmt.Sprint("step ", i)})
			}
			a.progress(r, agentapi.Progress{Step: "workload"})
		})
	}
	workers.Wait()
	n := link.until(t, leases, func(p agentapi.Progress) bool { return p.Step == "workload" })
	if most := syncBurst + 1 + int(syncRate*time.Since(began).Seconds()); n > most {
		t.Errorf("%d reports in %v, %d were allowed", n, time.Since(began), most)
	}
}

func (*reports) Volume(context.Context, agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	return agentapi.VolumeReply{}, nil
}
