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

// NodeSample is one reading of one lease: counters in bytes, which begin again from zero when the workload is started
// again, and what its scratch holds. -1 means that the host does not know the value.
type NodeSample struct {
	At                  time.Time
	NetRx, NetTx        int64 // with the internet
	RanksRx, RanksTx    int64 // with the other ranks
	DiskRead, DiskWrite int64
	Scratch             int64
}

// NodeSampleOf converts a sample that a host reported, with its time.
func NodeSampleOf(s agentapi.NodeSample, at time.Time) NodeSample {
	return NodeSample{At: at.UTC(), NetRx: count(s.NetRx), NetTx: count(s.NetTx), RanksRx: count(s.RanksRx),
		RanksTx: count(s.RanksTx), DiskRead: count(s.DiskRead), DiskWrite: count(s.DiskWrite), Scratch: count(s.Scratch)}
}

// count returns a number that a host reported, or -1 for one that it does not know or that makes no sense.
func count(n *int64) int64 {
	if n == nil || *n < 0 || *n > 1<<60 {
		return -1
	}
	return *n
}

// NodeSeries is the samples of one lease.
type NodeSeries struct {
	Lease   id.Lease
	Samples []NodeSample
}

// NodeRate is what a node exchanged per second between a sample and the one before, in bytes, and what its scratch
// held. A value is -1 if it is not known: the host does not measure it, the workload was started again in between, or
// the samples are far apart.
type NodeRate struct {
	At                  time.Time
	NetRx, NetTx        float64
	RanksRx, RanksTx    float64
	DiskRead, DiskWrite float64
	Scratch             float64
}

// RateHole is the longest time between samples for which a rate is known, if the samples are not thinner.
const RateHole = time.Minute

// Rates returns the rates between samples, which are sorted by time and about a step apart. The first sample has none.
func Rates(samples []NodeSample, step time.Duration) []NodeRate {
	hole := max(RateHole, 3*step)
	var out []NodeRate
	for i := 1; i < len(samples); i++ {
		a, b := samples[i-1], samples[i]
		d := b.At.Sub(a.At)
		rate := func(from, to int64) float64 {
			if from < 0 || to < from || d <= 0 || d > hole {
				return -1
			}
			return float64(to-from) / d.Seconds()
		}
		out = append(out, NodeRate{At: b.At, NetRx: rate(a.NetRx, b.NetRx), NetTx: rate(a.NetTx, b.NetTx),
			RanksRx: rate(a.RanksRx, b.RanksRx), RanksTx: rate(a.RanksTx, b.RanksTx),
			DiskRead: rate(a.DiskRead, b.DiskRead), DiskWrite: rate(a.DiskWrite, b.DiskWrite),
			Scratch: float64(b.Scratch)})
	}
	return out
}

// Leases returns the leases of a host of which it may send samples, by their names on the wire.
func (a *Agents) Leases(ctx context.Context, host id.Host) (map[string]id.Lease, error) {
	rows, err := a.db.Q.LeasesOnHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("leases of %s: %w", host, err)
	}
	out := make(map[string]id.Lease, len(rows))
	for _, l := range rows {
		out[l.String()] = l
	}
	return out, nil
}

// AppendNodeTelemetry adds samples to the leases' history, many leases with each statement.
func (a *Agents) AppendNodeTelemetry(ctx context.Context, series []NodeSeries) error {
	// Sort the rows, so that replicas that write samples of the same leases at once do not deadlock.
	series = slices.SortedFunc(slices.Values(series), func(a, b NodeSeries) int { return a.Lease.Compare(b.Lease) })
	chunks := []dbq.AppendNodeTelemetryParams{{}}
	for _, s := range series {
		p := &chunks[len(chunks)-1]
		if len(p.Leases) >= telemetryChunk {
			chunks = append(chunks, dbq.AppendNodeTelemetryParams{})
			p = &chunks[len(chunks)-1]
		}
		for _, v := range s.Samples {
			p.Leases = append(p.Leases, pgtype.UUID{Bytes: s.Lease.UUID(), Valid: true})
			p.Buckets = append(p.Buckets, v.At.UTC().Truncate(TelemetryBucket))
			p.AtMs = append(p.AtMs, v.At.UnixMilli())
			p.NetRx, p.NetTx = append(p.NetRx, v.NetRx), append(p.NetTx, v.NetTx)
			p.RanksRx, p.RanksTx = append(p.RanksRx, v.RanksRx), append(p.RanksTx, v.RanksTx)
			p.DiskRead, p.DiskWrite = append(p.DiskRead, v.DiskRead), append(p.DiskWrite, v.DiskWrite)
			p.Scratch = append(p.Scratch, v.Scratch)
		}
	}
	if len(chunks[0].Leases) == 0 {
		return nil
	}
	var first error
	a.db.Q.AppendNodeTelemetry(ctx, chunks).Exec(func(_ int, err error) { first = cmp.Or(first, err) })
	if first != nil {
		return fmt.Errorf("append telemetry of nodes: %w", first)
	}
	return nil
}

// NodeTelemetry returns the rates of leases in [from, to), sorted by time, at most one per step (0: TelemetryStep), in
// the order of the leases.
func NodeTelemetry(ctx context.Context, q *dbq.Queries, leases []id.Lease, from, to time.Time,
	step time.Duration) ([][]NodeRate, error) {
	step = max(step, TelemetryStep)
	before := from.Add(-max(RateHole, 3*step)) // the first rate needs the sample before
	rows, err := q.ReadNodeTelemetry(ctx, id.UUIDs(leases...), before.Add(-TelemetryBucket), to)
	if err != nil {
		return nil, fmt.Errorf("read telemetry of nodes: %w", err)
	}
	samples := map[id.Lease][]NodeSample{}
	for _, r := range rows {
		for i, ms := range r.AtMs {
			if t := time.UnixMilli(ms).UTC(); !t.Before(before) && t.Before(to) {
				samples[r.LeaseID] = append(samples[r.LeaseID], NodeSample{t, r.NetRx[i], r.NetTx[i], r.RanksRx[i],
					r.RanksTx[i], r.DiskRead[i], r.DiskWrite[i], r.Scratch[i]})
			}
		}
	}
	out := make([][]NodeRate, len(leases))
	for i, l := range leases {
		s := samples[l]
		slices.SortStableFunc(s, func(a, b NodeSample) int { return a.At.Compare(b.At) })
		s = slices.CompactFunc(s, func(a, b NodeSample) bool { return a.At.Truncate(step).Equal(b.At.Truncate(step)) })
		out[i] = slices.DeleteFunc(Rates(s, step), func(r NodeRate) bool { return r.At.Before(from) })
	}
	return out, nil
}
