package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

const (
	// TelemetryStep is the time between stored samples.
	TelemetryStep = 10 * time.Second
	// TelemetryBucket is the time that one row of history covers.
	TelemetryBucket = 5 * time.Minute
	// readingFor is how long a sample counts as a GPU's present reading. A host without leases may send the same readings
	// every agentapi.CalmTelemetry, one such message may be lost, and samples are stored a while after they arrive.
	readingFor = 2*agentapi.CalmTelemetry + time.Minute
)

// Sample is one reading of one GPU. A value of -1 means that the device does not report it.
type Sample struct {
	At     time.Time
	Util   int // percent
	MemMB  int
	PowerW int
	TempC  int // °C
	// Speed is nil while the GPU idles, and if its agent reports none.
	Speed *Speed
}

// SampleOf converts a sample that a host reported, with its time.
func SampleOf(s agentapi.GPUSample, at time.Time) Sample {
	return Sample{
		At:     at.UTC(),
		Util:   number(s.Util, 1),
		MemMB:  number(s.MemUsed, 1<<20),
		PowerW: number(s.PowerMW, 1000),
		TempC:  number(s.TempC, 1),
		Speed:  speedOf(s),
	}
}

// number returns *v divided by per, or -1 if the device does not report the value.
func number[T int | int64](v *T, per T) int {
	if v == nil || *v < 0 {
		return -1
	}
	return int(*v / per)
}

// Series is the samples of one GPU.
type Series struct {
	GPU     id.GPU
	Samples []Sample
}

// telemetryChunk is the largest number of samples that one statement stores.
const telemetryChunk = 20_000

// AppendTelemetry adds samples to the GPUs' history, many GPUs with each statement.
func (a *Agents) AppendTelemetry(ctx context.Context, series []Series) error {
	// Sort the rows, so that replicas that write samples of the same GPUs at once do not deadlock.
	series = slices.SortedFunc(slices.Values(series), func(a, b Series) int { return a.GPU.Compare(b.GPU) })
	chunks := []dbq.AppendTelemetryParams{{}}
	for _, s := range series {
		p := &chunks[len(chunks)-1]
		if len(p.Gpus) >= telemetryChunk {
			chunks = append(chunks, dbq.AppendTelemetryParams{})
			p = &chunks[len(chunks)-1]
		}
		for _, v := range s.Samples {
			p.Gpus = append(p.Gpus, pgtype.UUID{Bytes: s.GPU.UUID(), Valid: true})
			p.Buckets = append(p.Buckets, v.At.UTC().Truncate(TelemetryBucket))
			p.AtMs = append(p.AtMs, v.At.UnixMilli())
			p.Util = append(p.Util, int16(bound(v.Util, 100)))
			p.MemMb = append(p.MemMb, int32(bound(v.MemMB, 1<<30)))
			p.PowerW = append(p.PowerW, int32(bound(v.PowerW, 1<<20)))
			p.TempC = append(p.TempC, int16(bound(v.TempC, 1000)))
		}
	}
	if len(chunks[0].Gpus) == 0 {
		return nil
	}
	var first error
	a.db.Q.AppendTelemetry(ctx, chunks).Exec(func(_ int, err error) { first = cmp.Or(first, err) })
	if first != nil {
		return fmt.Errorf("append telemetry: %w", first)
	}
	return a.appendSpeed(ctx, series)
}

// bound limits n to the range from -1, which means unknown, to most.
func bound(n, most int) int { return min(max(n, -1), most) }

// Telemetry returns the GPUs' samples in [from, to), sorted by time, at most one per step (0: TelemetryStep). The
// caller must limit the times to those that the reader may see.
func Telemetry(ctx context.Context, q *dbq.Queries, gpus []id.GPU, from, to time.Time,
	step time.Duration) ([]Series, error) {
	rows, err := q.ReadTelemetry(ctx, id.UUIDs(gpus...), from.Add(-TelemetryBucket), to)
	if err != nil {
		return nil, fmt.Errorf("read telemetry: %w", err)
	}
	at := map[id.GPU]int{}
	out := make([]Series, len(gpus))
	for i, g := range gpus {
		at[g], out[i].GPU = i, g
	}
	for _, r := range rows {
		s := &out[at[r.GPUID]]
		for i, ms := range r.AtMs {
			t := time.UnixMilli(ms).UTC()
			if t.Before(from) || !t.Before(to) {
				continue
			}
			s.Samples = append(s.Samples, Sample{At: t, Util: int(r.Util[i]),
				MemMB: int(r.MemMb[i]), PowerW: int(r.PowerW[i]), TempC: int(r.TempC[i])})
		}
	}
	for _, s := range out {
		slices.SortStableFunc(s.Samples, func(a, b Sample) int { return a.At.Compare(b.At) })
	}
	if err := addSpeed(ctx, q, gpus, from, to, out); err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Samples = thin(out[i].Samples, step)
	}
	return out, nil
}

// History returns the GPUs' samples in [from, to), as Telemetry does. The GPUs come from Get and belong to one host.
func (x *Hosts) History(ctx context.Context, gpus []GPU, from, to time.Time, step time.Duration) ([]Series, error) {
	ids := make([]id.GPU, len(gpus))
	for i, g := range gpus {
		ids[i] = g.ID
	}
	return Telemetry(ctx, x.db.Q, ids, from, to, step)
}

// Readings returns the newest sample of each GPU within readingFor. A GPU without a lease whose host is connected had
// about these readings until now: see agentapi.CalmTelemetry. The GPUs come from Get and belong to one host; GPUs
// without a sample are omitted.
func (x *Hosts) Readings(ctx context.Context, gpus []GPU) (map[id.GPU]Sample, error) {
	now := time.Now() // for display
	series, err := x.History(ctx, gpus, now.Add(-readingFor), now, TelemetryStep)
	if err != nil {
		return nil, err
	}
	last := map[id.GPU]Sample{}
	for _, s := range series {
		if n := len(s.Samples); n > 0 {
			last[s.GPU] = s.Samples[n-1]
		}
	}
	return last, nil
}

// thin keeps the first sample of each step, with what slowed the GPU down at the others. s is sorted by time.
func thin(s []Sample, step time.Duration) []Sample {
	if step <= 0 {
		step = TelemetryStep
	}
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && out[n-1].At.Truncate(step).Equal(x.At.Truncate(step)) {
			out[n-1].Speed = out[n-1].Speed.join(x.Speed)
			continue
		}
		out = append(out, x)
	}
	return out
}
