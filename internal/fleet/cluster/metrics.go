package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// GPUMetrics are the readings of one GPU, of the time in which it was the cluster's own. A rank that was replaced has
// more GPUs than it has now: those of its hosts before are there too, with a HadUntil.
type GPUMetrics struct {
	Rank     int
	Host     id.Host
	HostName string
	UUID     string
	Model    string
	VRAMMB   int64
	HadFrom  time.Time
	HadUntil *time.Time    // nil: its own still
	Samples  []host.Sample // by time
}

// Metrics reads what the cluster's GPUs told in [from, to), thinned to a sample per step (0: host.TelemetryStep), by
// rank, time and index. Fault: NotFound for a cluster of others.
func (c *Clusters) Metrics(ctx context.Context, org id.Org, cl id.Cluster, from, to time.Time,
	step time.Duration) ([]GPUMetrics, error) {
	if _, err := c.owned(ctx, org, cl); err != nil {
		return nil, err
	}
	had, err := c.db.Q.GPUsOfCluster(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("GPUs of %s: %w", cl, err)
	}
	gpus := make([]id.GPU, 0, len(had))
	for _, g := range had {
		if !slices.Contains(gpus, g.ID) {
			gpus = append(gpus, g.ID)
		}
	}
	series, err := host.Telemetry(ctx, c.db.Q, gpus, from, to, step)
	if err != nil {
		return nil, err
	}
	out := make([]GPUMetrics, len(had))
	for i, g := range had {
		out[i] = GPUMetrics{
			Rank: int(g.Rank), Host: g.HostID, HostName: g.HostName, UUID: g.UUID, Model: g.Model, VRAMMB: g.VramMb,
			HadFrom: g.HadFrom, HadUntil: g.HadUntil,
		}
		for _, s := range series[slices.Index(gpus, g.ID)].Samples {
			// What the GPU did before and after is somebody else's.
			if !s.At.Before(g.HadFrom) && (g.HadUntil == nil || s.At.Before(*g.HadUntil)) {
				out[i].Samples = append(out[i].Samples, s)
			}
		}
	}
	return out, nil
}
