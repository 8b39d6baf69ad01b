// Package ingest measures goal 5: signed usage segments, from the bytes of a host's report to committed, deduplicated
// and posted, compared with a bare insert of the same rows.
//
// Ours is what a replica does with them: decode the report, verify every signature, lock the meters, look for what is
// known already, judge each segment, store it, charge it, book it, answer. The baseline is one statement per batch,
// INSERT … SELECT unnest(…) ON CONFLICT DO NOTHING, over as many connections as ours writes on; it writes the same
// bytes of segments and signed lists, and verifies, charges and books nothing.
package ingest

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/heap"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/merkle"
	"github.com/musterhq/muster/internal/signature"
)

// Config says how much is measured.
type Config struct {
	Rounds   int
	Hosts    int  // of eight leases each
	Past     int  // segments of each lease that were taken in before, to fill the tables
	PerLease int  // segments of each lease in a report: 1 when all is well, more after an outage
	Reports  int  // of each host, timed, per round
	Clients  int  // reports under way at a time: what a replica handles at once
	Batch    int  // rows per insert of the baseline
	Alone    bool // each segment signed alone, as agents did that do not sign lists

	meter *platform.Meter
}

// writers is how many connections the baseline inserts on: as many as ours has transactions under way.
const writers = 2

// Result holds every round of each side. A unit is a segment, a call is a report.
type Result struct {
	Ours []platform.Run `json:"ours"`
	Bare []platform.Run `json:"bare"`
	// Verify is how many segments per second this machine verifies and does nothing else: no ingest that checks them can
	// be faster.
	Verify float64 `json:"verify_per_second"`
}

// Measure runs it against the PostgreSQL server at base.
func Measure(ctx context.Context, base string, c Config) (Result, error) {
	heap.Tune() // as a server does
	var w world
	t, err := platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB, _ string) error {
		if err := w.fill(ctx, d, c.Hosts); err != nil {
			return err
		}
		const most = agentapi.MaxSegments / platform.GPUsPerHost // of a lease in one report
		for n := 0; n < c.Past; n += most {
			past, err := w.reports(n, min(most, c.Past-n), c.Alone)
			if err != nil {
				return err
			}
			if err := c.deliver(ctx, d, past); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	defer t.Drop(ctx)
	if c.meter, err = platform.NewMeter(ctx, base); err != nil {
		return Result{}, err
	}
	var warm, timed []report
	for n := range c.Reports + 1 {
		more, err := w.reports(c.Past+n*c.PerLease, c.PerLease, c.Alone)
		if err != nil {
			return Result{}, err
		}
		if n == 0 {
			warm = more
			continue
		}
		timed = append(timed, more...)
	}
	var out Result
	if out.Verify, err = verify(ctx, w, timed); err != nil {
		return out, err
	}
	for range c.Rounds {
		ours, err := c.ours(ctx, t, warm, timed)
		if err != nil {
			return out, fmt.Errorf("ours: %w", err)
		}
		bare, err := c.bare(ctx, t, warm, timed)
		if err != nil {
			return out, fmt.Errorf("baseline: %w", err)
		}
		out.Ours, out.Bare = append(out.Ours, ours), append(out.Bare, bare)
	}
	return out, nil
}

func count(reports []report) (n int) {
	for _, r := range reports {
		n += len(r.segs)
	}
	return n
}

func (c Config) ours(ctx context.Context, t *platform.Template, warm, timed []report) (platform.Run, error) {
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return platform.Run{}, err
	}
	defer drop()
	d, err := db.Open(ctx, db.Config{URL: at})
	if err != nil {
		return platform.Run{}, err
	}
	defer d.Close()
	if err := c.deliver(ctx, d, warm); err != nil {
		return platform.Run{}, err
	}
	before := c.meter.Read()
	each, all, err := platform.Load(ctx, c.Clients, len(timed), ingestInto(d, timed))
	if err != nil {
		return platform.Run{}, err
	}
	n := count(timed)
	run := platform.Summary(each, all, n, c.meter.Read().Sub(before))
	return run, check(ctx, d, n+count(warm)+c.Past*c.Hosts*platform.GPUsPerHost)
}

// deliver takes reports in, untimed.
func (c Config) deliver(ctx context.Context, d *db.DB, reports []report) error {
	_, _, err := platform.Load(ctx, c.Clients, len(reports), ingestInto(d, reports))
	return err
}

func ingestInto(d *db.DB, reports []report) func(context.Context, int, int) error {
	collector := metering.NewCollector(d)
	return func(ctx context.Context, _, i int) error { return take(ctx, collector, reports[i]) }
}

// take is what the host link does with the segments of a report, and wants every one of them acknowledged.
func take(ctx context.Context, c *metering.Collector, r report) error {
	var s agentapi.Sync
	if err := json.Unmarshal(r.json, &s); err != nil {
		return err
	}
	acks, err := c.Ingest(ctx, r.host, s.Segments, s.SegmentsSignature)
	if err != nil {
		return err
	}
	through := map[string]int64{}
	for _, a := range acks {
		if a.Refused != "" {
			return fmt.Errorf("a segment of %s was refused: %s", a.LeaseRef, a.Refused)
		}
		through[a.Lease] = a.Through
	}
	for _, s := range s.Segments {
		if through[s.Lease] < s.Seq {
			return fmt.Errorf("segment %d of %s was not acknowledged", s.Seq, s.Lease)
		}
	}
	return nil
}

func (c Config) bare(ctx context.Context, t *platform.Template, warm, timed []report) (platform.Run, error) {
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return platform.Run{}, err
	}
	defer drop()
	conns := make([]*pgx.Conn, writers)
	for i := range conns {
		if conns[i], err = pgx.Connect(ctx, at); err != nil {
			return platform.Run{}, err
		}
		defer func() { _ = conns[i].Close(ctx) }()
	}
	insert := func(rows []row) func(context.Context, int, int) error {
		return func(ctx context.Context, worker, i int) error {
			return insertBare(ctx, conns[worker], rows[i*c.Batch:min((i+1)*c.Batch, len(rows))])
		}
	}
	batches := func(rows []row) int { return (len(rows) + c.Batch - 1) / c.Batch }
	first, rest := rowsOf(warm, 1<<40), rowsOf(timed, 1<<41) // far from the numbers that were drawn

	if _, _, err := platform.Load(ctx, writers, batches(first), insert(first)); err != nil {
		return platform.Run{}, err
	}
	before := c.meter.Read()
	each, all, err := platform.Load(ctx, writers, batches(rest), insert(rest))
	if err != nil {
		return platform.Run{}, err
	}
	return platform.Summary(each, all, len(rest), c.meter.Read().Sub(before)), nil
}

// row is a segment as the table has it.
type row struct {
	agentapi.Segment
	lease    pgtype.UUID
	hash     [32]byte
	list     int64 // 0: signed alone
	position int16
	whole    []byte // of a list's first row: the list's signature
	hashes   []byte // and its hashes
}

// rowsOf are the segments of reports whose lists are numbered from list on.
func rowsOf(reports []report, list int64) []row {
	var out []row
	for _, r := range reports {
		list++
		first := len(out)
		for i, s := range r.segs {
			l, _ := id.Parse[id.Lease](s.Lease) // made by us
			v := row{Segment: s, lease: pgtype.UUID{Bytes: l.UUID(), Valid: true}, hash: s.Hash(r.host.String())}
			if r.signature != nil {
				v.Signature, v.list, v.position = []byte{}, list, int16(i)
			}
			out = append(out, v)
		}
		if r.signature != nil {
			out[first].whole = r.signature
			for _, v := range out[first:] {
				out[first].hashes = append(out[first].hashes, v.hash[:]...)
			}
		}
	}
	return out
}

func insertBare(ctx context.Context, c *pgx.Conn, rows []row) error {
	leases, epochs, boots := make([]pgtype.UUID, len(rows)), make([]int32, len(rows)), make([]string, len(rows))
	var ints [6][]int64
	for k := range ints {
		ints[k] = make([]int64, len(rows))
	}
	finals, hashes, signatures := make([]bool, len(rows)), make([][]byte, len(rows)), make([][]byte, len(rows))
	lists, positions := make([]int64, len(rows)), make([]int16, len(rows))
	var numbers []int64
	var whole, members [][]byte
	for i := range rows {
		r := &rows[i]
		leases[i], epochs[i], boots[i] = r.lease, int32(r.Epoch), r.BootID
		for k, v := range [6]int64{r.Seq, r.Anchor, r.BootEndMS, r.StartMS, r.EndMS, r.EnergyMJ} {
			ints[k][i] = v
		}
		finals[i], hashes[i], signatures[i] = r.Final, r.hash[:], r.Signature
		lists[i], positions[i] = r.list, r.position
		if r.whole != nil {
			numbers, whole, members = append(numbers, r.list), append(whole, r.whole), append(members, r.hashes)
		}
	}
	_, err := c.Exec(ctx, `WITH lists AS (INSERT INTO segment_batch (id, signature, hashes) SELECT * FROM
		unnest($15::bigint[], $16::bytea[], $17::bytea[]))
		INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms, energy_mj, final,
		payload_hash, signature,
			batch, batch_position)
		SELECT * FROM unnest($1::uuid[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
		$8::bigint[], $9::bigint[],
			$10::boolean[], $11::bytea[], $12::bytea[], $13::bigint[], $14::smallint[])
		ON CONFLICT (lease_id, epoch, boot_id, seq) DO NOTHING`,
		leases, epochs, boots, ints[0], ints[1], ints[2], ints[3], ints[4], ints[5], finals, hashes, signatures, lists,
		positions, numbers, whole, members)
	return err
}

// verify measures hashes and signatures alone, on as many goroutines as there are processors.
func verify(ctx context.Context, w world, reports []report) (float64, error) {
	keys := map[id.Host]ed25519.PublicKey{}
	for _, h := range w.hosts {
		keys[h.ID] = h.Key.Public().(ed25519.PublicKey)
	}
	n := min(len(reports), 2000)
	_, all, err := platform.Load(ctx, platform.Processors(), n, func(_ context.Context, _, i int) error {
		r := &reports[i]
		if r.signature != nil {
			hashes := make([][32]byte, len(r.segs))
			for k := range r.segs {
				hashes[k] = r.segs[k].Hash(r.host.String())
			}
			s := signature.Signed{
				Key:       keys[r.host],
				Message:   agentapi.BatchPayload(r.host.String(), len(hashes), merkle.Root(hashes)),
				Signature: r.signature,
			}
			if !signature.Verify(s) {
				return errors.New("a list's signature does not hold")
			}
			return nil
		}
		for k := range r.segs {
			if err := r.segs[k].Verify(r.host.String(), keys[r.host]); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(count(reports[:n])) / all.Seconds(), err
}
