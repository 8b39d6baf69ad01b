package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Speed is how fast a GPU ran at one reading, and what slowed it down. A value of -1 is not known. The counters begin
// when the GPU's driver is loaded.
type Speed struct {
	SMMHz, MemMHz int
	Limits        Limits
	Fan           int   // percent
	PCIeReplays   int64 // packets that were sent again over PCIe
	NVLinkErrors  int64
	EnergyJ       int64 // that the GPU has used; of the history, known at some samples only
}

// speedOf returns the speed in a sample that a host reported. It is nil for an idle GPU, of which nothing is stored,
// and for a sample that has none, as older agents' have.
func speedOf(s agentapi.GPUSample) *Speed {
	limits := limitsOf(s.Clocks)
	idle := (s.Util == nil || *s.Util <= 0) && limits == 0
	if idle || s.SMMHz == nil && s.MemMHz == nil && s.Clocks == nil && s.Fan == nil {
		return nil
	}
	v := &Speed{SMMHz: number(s.SMMHz, 1), MemMHz: number(s.MemMHz, 1), Limits: limits, Fan: number(s.Fan, 1),
		PCIeReplays: count(s.PCIeReplays), NVLinkErrors: count(s.NVLinkErrors), EnergyJ: count(s.EnergyMJ)}
	if v.EnergyJ > 0 {
		v.EnergyJ /= 1000
	}
	return v
}

// ClockMHz returns the clock of the GPU's processors; -1 while it idles, or if it is not known.
func (s Sample) ClockMHz() int {
	if s.Speed == nil {
		return -1
	}
	return s.Speed.SMMHz
}

// SlowedBy describes what slows the GPU down that neither its load nor its operator's settings explain; "" = nothing.
func (s Sample) SlowedBy() string {
	if s.Speed == nil {
		return ""
	}
	return strings.Join((s.Speed.Limits & throttling).Words(), ", ")
}

// like reports whether two speeds are stored as one: energy rises all the time, and clocks and fans never quite rest.
func (v Speed) like(w Speed) bool {
	near := func(a, b, by int) bool { return a == b || a >= 0 && b >= 0 && max(a-b, b-a) <= by }
	return near(v.SMMHz, w.SMMHz, v.SMMHz/50) && near(v.MemMHz, w.MemMHz, v.MemMHz/50) && near(v.Fan, w.Fan, 5) &&
		v.Limits == w.Limits && v.PCIeReplays == w.PCIeReplays && v.NVLinkErrors == w.NVLinkErrors
}

// speedRun is samples that follow each other and are alike: the first one's speed, and the last one's energy.
type speedRun struct {
	at, until time.Time
	Speed
}

// speedRuns returns the runs of samples, which are sorted by time. No run reaches from one bucket into the next.
func speedRuns(samples []Sample) (out []speedRun) {
	for _, s := range samples {
		if s.Speed == nil {
			continue
		}
		if n := len(out); n > 0 {
			r := &out[n-1]
			if s.Speed.like(r.Speed) && s.At.Sub(r.until) <= 2*TelemetryStep &&
				s.At.Truncate(TelemetryBucket).Equal(r.at.Truncate(TelemetryBucket)) {
				r.until, r.EnergyJ = s.At, s.Speed.EnergyJ
				continue
			}
		}
		out = append(out, speedRun{s.At, s.At, *s.Speed})
	}
	return out
}

// appendSpeed adds the speeds of samples to the history. The series are sorted by GPU.
func (a *Agents) appendSpeed(ctx context.Context, series []Series) error {
	chunks := []dbq.AppendSpeedParams{{}}
	for _, s := range series {
		p := &chunks[len(chunks)-1]
		if len(p.Gpus) >= telemetryChunk {
			chunks = append(chunks, dbq.AppendSpeedParams{})
			p = &chunks[len(chunks)-1]
		}
		for _, r := range speedRuns(s.Samples) {
			p.Gpus = append(p.Gpus, pgtype.UUID{Bytes: s.GPU.UUID(), Valid: true})
			p.Buckets = append(p.Buckets, r.at.UTC().Truncate(TelemetryBucket))
			p.AtMs = append(p.AtMs, r.at.UnixMilli())
			p.ForMs = append(p.ForMs, int32(r.until.UnixMilli()-r.at.UnixMilli()))
			p.SmMhz, p.MemMhz = append(p.SmMhz, int32(bound(r.SMMHz, 1<<20))), append(p.MemMhz, int32(bound(r.MemMHz, 1<<20)))
			p.Limits = append(p.Limits, int32(r.Limits))
			p.Fan = append(p.Fan, int16(bound(r.Fan, 1000)))
			p.PcieReplays, p.NvlinkErrors = append(p.PcieReplays, r.PCIeReplays), append(p.NvlinkErrors, r.NVLinkErrors)
			p.EnergyJ = append(p.EnergyJ, r.EnergyJ)
		}
	}
	if len(chunks[0].Gpus) == 0 {
		return nil
	}
	var first error
	a.db.Q.AppendSpeed(ctx, chunks).Exec(func(_ int, err error) { first = cmp.Or(first, err) })
	if first != nil {
		return fmt.Errorf("append speeds of GPUs: %w", first)
	}
	return nil
}

// addSpeed reads the speeds of samples in [from, to). The samples of each series are sorted by time.
func addSpeed(ctx context.Context, q *dbq.Queries, gpus []id.GPU, from, to time.Time, series []Series) error {
	rows, err := q.ReadSpeed(ctx, id.UUIDs(gpus...), from.Add(-TelemetryBucket), to)
	if err != nil {
		return fmt.Errorf("read speeds of GPUs: %w", err)
	}
	runs := map[id.GPU][]speedRun{}
	for _, r := range rows {
		for i, ms := range r.AtMs {
			at := time.UnixMilli(ms).UTC()
			runs[r.GPUID] = append(runs[r.GPUID], speedRun{at, at.Add(time.Duration(r.ForMs[i]) * time.Millisecond), Speed{
				SMMHz: int(r.SmMhz[i]), MemMHz: int(r.MemMhz[i]), Limits: Limits(r.Limits[i]), Fan: int(r.Fan[i]),
				PCIeReplays: r.PcieReplays[i], NVLinkErrors: r.NvlinkErrors[i], EnergyJ: r.EnergyJ[i]}})
		}
	}
	for _, s := range series {
		of := runs[s.GPU]
		slices.SortFunc(of, func(a, b speedRun) int { return a.at.Compare(b.at) })
		next := 0 // the first run that begins after the sample
		for i := range s.Samples {
			at := s.Samples[i].At
			for next < len(of) && !of[next].at.After(at) {
				next++
			}
			if next == 0 || at.After(of[next-1].until) {
				continue
			}
			v := of[next-1].Speed
			if at.Before(of[next-1].until) {
				v.EnergyJ = -1
			}
			s.Samples[i].Speed = &v
		}
	}
	return nil
}

// join returns the speed of a step: the first reading's clocks, every reason, and the newest counters.
func (v *Speed) join(w *Speed) *Speed {
	switch {
	case v == nil:
		return w
	case w == nil:
		return v
	}
	out := *v
	out.Limits |= w.Limits
	out.PCIeReplays, out.NVLinkErrors = max(v.PCIeReplays, w.PCIeReplays), max(v.NVLinkErrors, w.NVLinkErrors)
	out.EnergyJ = max(v.EnergyJ, w.EnergyJ)
	return &out
}
