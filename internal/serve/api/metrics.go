package api

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

const (
	maxMetricsSpan = 31 * 24 * time.Hour
	maxSamples     = 1000 // of one GPU in one answer; the step grows to keep to it
)

type metricsInput struct {
	ID   string    `path:"id"`
	From time.Time `query:"from" doc:"left out: an hour before 'to'"`
	To   time.Time `query:"to" doc:"left out: now"`
	Step int       `query:"step" minimum:"1" maximum:"86400" doc:"seconds between samples; left out: as fine as fits"`
}

type sampleView struct {
	At     time.Time `json:"at"`
	Util   *int      `json:"util" doc:"percent; null where the GPU does not tell"`
	MemMB  *int      `json:"mem_mb"`
	PowerW *int      `json:"power_w"`
	TempC  *int      `json:"temp_c"`
}

type gpuMetricsView struct {
	Rank     int          `json:"rank"`
	HostID   id.Host      `json:"host_id"`
	HostName string       `json:"host_name"`
	UUID     string       `json:"uuid"`
	Model    string       `json:"model"`
	VRAMMB   int64        `json:"vram_mb"`
	Samples  []sampleView `json:"samples"`
}

type networkMetricsView struct {
	BusbwGbps float64     `json:"busbw_gbps" doc:"all-reduce bus bandwidth as the preflight measured it; 0: not measured"`
	RTTMicros [][]float64 `json:"rtt_us" doc:"between ranks, a row per rank"`
	PairGbps  [][]float64 `json:"pair_gbps"`
}

type metricsView struct {
	From    time.Time          `json:"from"`
	To      time.Time          `json:"to"`
	Step    int                `json:"step" doc:"seconds"`
	GPUs    []gpuMetricsView   `json:"gpus"`
	Network networkMetricsView `json:"network"`
}

// clusterMetrics shows a GPU's readings only for the time in which it belonged to the cluster.
func (a *API) clusterMetrics(ctx context.Context, p account.Principal, in *metricsInput) (metricsView, error) {
	cl, err := pathID[id.Cluster](in.ID, "cluster")
	if err != nil {
		return metricsView{}, err
	}
	c, err := a.clusters.Get(ctx, p.Org, cl)
	if err != nil {
		return metricsView{}, err
	}
	from, to, step, err := in.span(time.Now().UTC())
	if err != nil {
		return metricsView{}, err
	}
	v := metricsView{From: from, To: to, Step: int(step.Seconds()), GPUs: []gpuMetricsView{}, Network: networkMetricsView{
		BusbwGbps: c.Network.BusbwGbps, RTTMicros: orEmpty(c.Network.RTTMicros), PairGbps: orEmpty(c.Network.PairGbps),
	}}
	gpus, err := a.clusters.Metrics(ctx, p.Org, cl, from, to, step)
	if err != nil {
		return metricsView{}, err
	}
	for _, g := range gpus {
		m := gpuMetricsView{
			Rank:     g.Rank,
			HostID:   g.Host,
			HostName: g.HostName,
			UUID:     g.UUID,
			Model:    g.Model,
			VRAMMB:   g.VRAMMB,
			Samples:  []sampleView{},
		}
		for _, s := range g.Samples {
			m.Samples = append(m.Samples, sampleView{s.At.UTC(), known(s.Util), known(s.MemMB), known(s.PowerW), known(s.TempC)})
		}
		v.GPUs = append(v.GPUs, m)
	}
	return v, nil
}

// span is the time asked for, bounded, and a step that keeps the answer small.
func (in *metricsInput) span(now time.Time) (from, to time.Time, step time.Duration, err error) {
	to = in.To.UTC()
	if in.To.IsZero() || to.After(now) {
		to = now
	}
	from = in.From.UTC()
	if in.From.IsZero() {
		from = to.Add(-time.Hour)
	}
	switch {
	case !from.Before(to):
		return from, to, 0, fault.InvalidField("query.from", "has to be before 'to'")
	case to.Sub(from) > maxMetricsSpan:
		return from, to, 0, fault.InvalidField("query.from", "at most 31 days can be asked for at once")
	}
	step = max(time.Duration(in.Step)*time.Second, host.TelemetryStep)
	if finest := to.Sub(from) / maxSamples; step < finest {
		step = finest.Truncate(time.Second) + time.Second
	}
	return from, to, step, nil
}

func known(v int) *int {
	if v < 0 {
		return nil
	}
	return &v
}

func orEmpty(m [][]float64) [][]float64 {
	if m == nil {
		return [][]float64{}
	}
	return m
}
