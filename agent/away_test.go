package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// A start on a host whose engine is away waits, says for how long and what it costs, in words that name no address of
// the host's, and fails as the host's fault. What has started is not concluded.
func TestAStartWithoutAnEngine(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	engine, err := container.New(container.Config{
		Docker: "unix://" + socket,
		Host:   id.New[id.Host](),
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen, watched := make(chan struct{}, 1), make(chan struct{})
	go func() { defer close(watched); engine.Watch(ctx, func(agentapi.LeaseRef) { poke(seen) }) }()
	defer func() { cancel(); <-watched }()
	<-seen
	since, why, away := engine.Away()
	if !away || why == "" {
		t.Fatal("an engine that is not there is not away")
	}
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	now := since
	a, err := New(Config{
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 1 },
		Now:      func() time.Time { return now },
		Engine:   engine,
		GPUs:     sickGPUs{}.parts(),
		Log:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.journal.Close()
	a.runs.scanned = true
	if s, _ := a.sync(); s.EngineAway == nil || s.EngineAway.Detail == "" || s.Full {
		t.Errorf("it reports %+v, full: %t", s.EngineAway, s.Full)
	}
	r := a.runs.add(ref, record{Spec: agentapi.LeaseSpec{LeaseRef: ref}})
	r.want = &agentapi.LeaseSpec{LeaseRef: ref}
	l := a.runs.leases[ref.Lease]
	a.step(ctx, l, r)
	if st := r.status; st.State != agentapi.NodePulling || !strings.Contains(st.Progress.WaitingFor,
		"engine does not answer") ||
		!strings.Contains(st.Progress.WaitingFor, "Nothing is charged") || len(st.Progress.WaitingFor) > 200 ||
		strings.Contains(st.Progress.WaitingFor, socket) {
		t.Errorf("it waits for %q: %+v", st.Progress.WaitingFor, st)
	}
	now = since.Add(enginePatience)
	a.step(ctx, l, r)
	if st := r.status; st.State != agentapi.NodeFailed || st.Reason != agentapi.ReasonRuntimeFailed ||
		strings.Contains(st.Detail, socket) {
		t.Errorf("after %s: %+v", enginePatience, st)
	}
	for name, begun := range map[string]record{"released": {BarrierOpened: true}, "started": {Started: true}} {
		v := view{want: r.want, rec: begun}
		if o := a.withoutEngine(v, now.Add(time.Hour)); o != nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
