package agent

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// sampled is GPUs that always return one sample, and a link that records when telemetry is sent.
type sampled struct {
	GPUTelemetry
	Link
	born time.Time
	mu   sync.Mutex
	at   []time.Duration
}

func (s *sampled) Sample(context.Context, ...string) (gpu.Batch, error) {
	return gpu.Batch{Samples: []agentapi.GPUSample{{GPU: "GPU-0"}}}, nil
}

func (s *sampled) Telemetry(t agentapi.Telemetry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Since(s.born))
	return nil
}

// between returns when samples were sent, from one second up to another.
func (s *sampled) between(from, to int) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []time.Duration
	for _, at := range s.at {
		if at > time.Duration(from)*time.Second && at <= time.Duration(to)*time.Second {
			out = append(out, at)
		}
	}
	return out
}

// With a lease telemetry is sent every ten seconds, and every second for a minute after a wake that wants it, however
// many wakes come. Without one, and without such a wake, the same readings are sent every four to five minutes. The
// clock is the synctest bubble's: it moves when all goroutines wait.
func TestTelemetryIsQuickWhileWatched(t *testing.T) {
	t.Parallel()
	j, err := journal.Open(t.TempDir(), journal.Config{BootID: "boot", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	synctest.Test(t, func(t *testing.T) {
		s := &sampled{born: time.Now()}
		rs := &runs{known: true, leases: map[string]*lease{"lease": {runs: []*run{{}}}}}
		a := &Agent{runs: rs, desired: &desired{runs: rs},
			telemetry: &telemetry{gpus: s, link: s, journal: j, runs: rs, now: time.Now}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.telemetry.run(ctx)
		until := func(second int) {
			time.Sleep(time.Duration(second)*time.Second + time.Millisecond - time.Since(s.born))
			synctest.Wait()
		}
		every := func(what string, from, to, want int, step time.Duration) {
			t.Helper()
			got := s.between(from, to)
			if len(got) != want {
				t.Errorf("%s: %d samples, want %d: %v", what, len(got), want, got)
			}
			for i := range got[:max(len(got)-1, 0)] {
				if got[i+1]-got[i] != step {
					t.Errorf("%s: not every %v: %v", what, step, got)
				}
			}
		}
		until(100)
		every("not watched", 0, 100, 10, telemetryIdle)
		a.Wake(agentapi.Wake{})
		until(120)
		every("a wake for something else", 100, 120, 2, telemetryIdle)
		a.Wake(agentapi.Wake{Watch: true}) // until 180
		until(150)
		every("watched", 120, 150, 30, telemetryLive)
		a.Wake(agentapi.Wake{Watch: true}) // until 210
		until(210)
		every("still watched", 150, 210, 60, telemetryLive)
		until(310)
		every("not watched any more", 210, 310, 10, telemetryIdle)
		a.runs.mu.Lock()
		clear(a.runs.leases)
		a.runs.mu.Unlock()
		until(1510)
		if got := s.between(310, 1510); len(got) < 4 || len(got) > 5 {
			t.Errorf("without a lease: %d samples in 20 minutes: %v", len(got), got)
		}
		a.Wake(agentapi.Wake{Watch: true})
		until(1540)
		every("watched without a lease", 1510, 1540, 30, telemetryLive)
		if slices.ContainsFunc(s.between(0, 310), func(at time.Duration) bool { return at < telemetryLive }) {
			t.Error("a sample before the first second")
		}
	})
}
