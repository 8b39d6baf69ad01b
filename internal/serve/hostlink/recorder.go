package hostlink

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// telemetryStore is where a recorder looks up GPUs and leases and stores samples. *host.Agents implements it.
type telemetryStore interface {
	GPUs(ctx context.Context, host id.Host) (map[string]id.GPU, error)
	AppendTelemetry(ctx context.Context, series []host.Series) error
	Leases(ctx context.Context, host id.Host) (map[string]id.Lease, error)
	AppendNodeTelemetry(ctx context.Context, series []host.NodeSeries) error
}

// recorder collects telemetry for the history: at most one sample per GPU, or lease, and host.TelemetryStep, stored at
// intervals. If a replica crashes, the samples in its memory are lost, which is acceptable because nothing is billed
// by them. Live views receive samples over the bus.
type recorder struct {
	store telemetryStore
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	gpus   map[id.Host]map[string]id.GPU // by NVML UUID; deleted when an inventory arrives
	turn   uint64                        // incremented with every deletion from gpus
	last   map[id.GPU]time.Time          // step of the newest sample
	waited map[id.GPU][]host.Sample
	nodes  nodeRecorder
}

func newRecorder(store telemetryStore, now func() time.Time, log *slog.Logger) *recorder {
	return &recorder{
		store:  store,
		now:    now,
		log:    log,
		gpus:   map[id.Host]map[string]id.GPU{},
		last:   map[id.GPU]time.Time{},
		waited: map[id.GPU][]host.Sample{},
		nodes:  newNodeRecorder(),
	}
}

const (
	// maxSamples is the largest number of samples in one message: a minute of the largest host, one per second and GPU.
	maxSamples = 60 * host.MaxGPUs
	// Samples older than maxAge, or more than maxAhead in the future on our clock, are dropped.
	maxAge, maxAhead = 10 * time.Minute, 10 * time.Second
)

func (l *Link) handleTelemetry(ctx context.Context, h id.Host, m *nats.Msg) {
	var t agentapi.Telemetry
	if read(m, &t) != nil || len(t.Samples) > maxSamples || len(t.Nodes) > maxSamples {
		l.log.Debug("telemetry not taken", "host", h)
		return
	}
	err := errors.Join(l.recorder.take(ctx, h, t.Samples), l.recorder.takeNodes(ctx, h, t.Nodes))
	if err != nil {
		l.log.Warn("telemetry not taken", "host", h, "err", err)
	}
}

func (r *recorder) take(ctx context.Context, h id.Host, samples []agentapi.GPUSample) error {
	gpus, err := r.gpusOf(ctx, h)
	if err != nil {
		return err
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range samples {
		gpu, known := gpus[s.GPU]
		at, ok := sampledAt(s.AtMS, now)
		step := at.Truncate(host.TelemetryStep)
		if !known || !ok || !step.After(r.last[gpu]) {
			continue
		}
		r.last[gpu] = step
		r.waited[gpu] = append(r.waited[gpu], host.SampleOf(s, at))
	}
	return nil
}

// sampledAt returns when a sample was taken; ok is false if it is too old or too far ahead.
func sampledAt(ms int64, now time.Time) (at time.Time, ok bool) {
	at = now
	if ms != 0 {
		at = time.UnixMilli(ms)
	}
	return at, at.Sub(now) <= maxAhead && now.Sub(at) <= maxAge
}

func (r *recorder) gpusOf(ctx context.Context, h id.Host) (map[string]id.GPU, error) {
	r.mu.Lock()
	gpus, turn := r.gpus[h], r.turn
	r.mu.Unlock()
	if gpus != nil {
		return gpus, nil
	}
	gpus, err := r.store.GPUs(ctx, h)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn == turn { // otherwise an inventory arrived meanwhile, and gpus may be outdated
		r.gpus[h] = gpus
	}
	return gpus, nil
}

// forget makes the next sample look up the host's GPUs again.
func (r *recorder) forget(h id.Host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.gpus, h)
	r.turn++
}

// flush stores the collected samples. If that fails, it drops them.
func (r *recorder) flush(ctx context.Context) {
	r.mu.Lock()
	waited := r.waited
	r.waited = map[id.GPU][]host.Sample{}
	nodes := r.nodes.drain()
	r.mu.Unlock()
	series := make([]host.Series, 0, len(waited))
	for g, s := range waited {
		series = append(series, host.Series{GPU: g, Samples: s})
	}
	if err := r.store.AppendTelemetry(ctx, series); err != nil {
		r.log.Warn("telemetry lost", "gpus", len(series), "err", err)
	}
	if err := r.store.AppendNodeTelemetry(ctx, nodes); err != nil {
		r.log.Warn("telemetry lost", "nodes", len(nodes), "err", err)
	}
}
