package hostlink

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// nodeRecorder is the part of a recorder that collects the samples of leases. The recorder's mutex guards it.
type nodeRecorder struct {
	leases map[id.Host]leasesOf
	last   map[id.Lease]time.Time // step of the newest sample that waits
	waited map[id.Lease][]host.NodeSample
}

// leasesOf is the leases of a host, as they were at a time.
type leasesOf struct {
	at     time.Time
	leases map[string]id.Lease
}

const (
	// leasesFor is how long the leases of a host are remembered.
	leasesFor = 5 * time.Minute
	// leasesAgain is the least time between two reads of a host's leases, for a host that names one that is not its own.
	leasesAgain = 10 * time.Second
)

func newNodeRecorder() nodeRecorder {
	return nodeRecorder{leases: map[id.Host]leasesOf{}, last: map[id.Lease]time.Time{},
		waited: map[id.Lease][]host.NodeSample{}}
}

// takeNodes collects the samples of the host's own leases, and ignores all others.
func (r *recorder) takeNodes(ctx context.Context, h id.Host, samples []agentapi.NodeSample) error {
	if len(samples) == 0 {
		return nil
	}
	leases, err := r.leasesOf(ctx, h, samples)
	if err != nil {
		return err
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range samples {
		lease, known := leases[s.Lease]
		at, ok := sampledAt(s.AtMS, now)
		step := at.Truncate(host.TelemetryStep)
		if !known || !ok || !step.After(r.nodes.last[lease]) {
			continue
		}
		r.nodes.last[lease] = step
		r.nodes.waited[lease] = append(r.nodes.waited[lease], host.NodeSampleOf(s, at))
	}
	return nil
}

// leasesOf returns the host's leases. They are read again if a sample names one that is not known.
func (r *recorder) leasesOf(ctx context.Context, h id.Host,
	samples []agentapi.NodeSample) (map[string]id.Lease, error) {
	now := r.now()
	r.mu.Lock()
	have := r.nodes.leases[h]
	r.mu.Unlock()
	fresh := have.leases != nil && now.Sub(have.at) < leasesFor
	for _, s := range samples {
		if _, known := have.leases[s.Lease]; !known && now.Sub(have.at) >= leasesAgain {
			fresh = false
		}
	}
	if fresh {
		return have.leases, nil
	}
	leases, err := r.store.Leases(ctx, h)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes.leases[h] = leasesOf{now, leases}
	return leases, nil
}

// drain returns what waits. It forgets leases and hosts that send nothing any more.
func (n *nodeRecorder) drain() (out []host.NodeSeries) {
	for l := range n.last {
		if n.waited[l] == nil {
			delete(n.last, l)
		}
	}
	for l, s := range n.waited {
		out = append(out, host.NodeSeries{Lease: l, Samples: s})
	}
	n.waited = map[id.Lease][]host.NodeSample{}
	return out
}
