package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
)

// metered are the tables that hold what was used, exact to the millisecond: the segments with their signatures, the
// meters, and the anchors and windows that they are read with. posted are the ledger's rows for it.
var (
	metered = []string{"usage_segment", "lease_meter", "time_anchor", "cluster_window", "segment_quarantine"}
	posted  = []string{"ledger_tx", "ledger_transfer", "ledger_balance", "ledger_account"}
)

// StorageRows measures goal 6: what a billed GPU-second costs in storage, tables and indexes, compared with a row per
// second; and that accepting a report costs a lease of a year what it costs a lease of an hour.
func StorageRows(ctx context.Context, base string) ([]table.Row, error) {
	usage, books, perSecond, err := storage(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	rows := []table.Row{
		{
			Goal:         6,
			Name:         "metering, per billed GPU-second of leases of one GPU",
			Unit:         "B",
			Ours:         usage,
			Baseline:     perSecond,
			BaselineName: "a row per second",
			Ratio:        usage / perSecond,
			Want:         "≤ 2.2 B",
			Met:          usage <= 2.2,
		},
		{
			Goal:         6,
			Name:         "the same with the ledger's rows",
			Unit:         "B",
			Ours:         usage + books,
			Baseline:     perSecond,
			BaselineName: "a row per second",
			Ratio:        (usage + books) / perSecond,
		},
	}
	history, err := history(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return append(rows, history), nil
}

// storage takes in ten hours of leases of one GPU each, a segment at a time as hosts send them, and weighs the tables.
// The baseline holds the same time as a row per lease and second with a key, which is the least that such a design can
// have.
func storage(ctx context.Context, base string) (usage, books, perSecond float64, err error) {
	const hosts, segments = 25, 120
	var w world
	t, err := platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB,
		_ string) error {
		return w.fill(ctx, d, hosts)
	})
	if err != nil {
		return 0, 0, 0, err
	}
	defer t.Drop(ctx)
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	defer drop()
	d, err := db.Open(ctx, db.Config{URL: at})
	if err != nil {
		return 0, 0, 0, err
	}
	defer d.Close()
	empty, err := sizes(ctx, d.Pool, posted)
	if err != nil {
		return 0, 0, 0, err
	}
	c := Config{Clients: 8}
	for n := range segments {
		reports, err := w.reports(n, 1, false)
		if err != nil {
			return 0, 0, 0, err
		}
		if err := c.deliver(ctx, d, reports); err != nil {
			return 0, 0, 0, err
		}
	}
	leases := hosts * platform.GPUsPerHost
	if err := check(ctx, d, segments*leases); err != nil { // exact: every millisecond is billed
		return 0, 0, 0, err
	}
	seconds := float64(leases*segments) * segmentMS / 1000
	used, err := sizes(ctx, d.Pool, metered)
	if err != nil {
		return 0, 0, 0, err
	}
	full, err := sizes(ctx, d.Pool, posted)
	if err != nil {
		return 0, 0, 0, err
	}
	const sample = 1_000_000
	for _, sql := range []string{
		"CREATE TABLE usage_second (lease_id uuid, at timestamptz, gpu_id uuid, energy_mj bigint, PRIMARY KEY " +
			"(lease_id, at))",
		fmt.Sprintf(`INSERT INTO usage_second SELECT l.id, to_timestamp(s), l.gpu_ids[1], 700000
			FROM (SELECT id, gpu_ids FROM lease ORDER BY id LIMIT 100) l, generate_series(1, %d) s`, sample/100),
	} {
		if _, err := d.Pool.Exec(ctx, sql); err != nil {
			return 0, 0, 0, err
		}
	}
	rows, err := sizes(ctx, d.Pool, []string{"usage_second"})
	return float64(used) / seconds, float64(full-empty) / seconds, float64(rows) / sample, err
}

// sizes is the bytes of tables with their indexes, after a vacuum.
func sizes(ctx context.Context, p *pgxpool.Pool, tables []string) (sum int64, err error) {
	for _, t := range tables {
		if _, err := p.Exec(ctx, "VACUUM FULL "+t); err != nil { // what dead rows hold is used again
			return 0, err
		}
		var n int64
		if err := p.QueryRow(ctx, "SELECT pg_total_relation_size($1::text::regclass)", t).Scan(&n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// yearOfSegments is how many segments a lease sends in a year.
const yearOfSegments = 365 * 24 * 12

// history takes in the same reports for leases with an hour and for leases with a year of segments behind them, report
// by report in turn. (Alternating whole rounds gave 0.48 to 1.43, with the machine's load.)
func history(ctx context.Context, base string) (table.Row, error) {
	const hosts, rounds, reports = 1, 3, 100
	var w [2]world
	var t [2]*platform.Template
	for i, past := range []int{12, yearOfSegments} {
		var err error
		t[i], err = platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB, _ string) error {
			if err := w[i].fill(ctx, d, hosts); err != nil {
				return err
			}
			// Of an earlier boot: only that they are there matters to what comes now.
			_, err := d.Pool.Exec(ctx, `INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms,
				end_ms, energy_mj, final, payload_hash, signature)
				SELECT l.id, 1, 'an earlier boot', s, 1, s * 300000, s * 300000, (s + 1) * 300000, 210000000, false,
				sha256(l.id::text::bytea || s::text::bytea), decode(repeat('00', 64), 'hex')
				FROM lease l, generate_series(1, $1::bigint) s`, past)
			return err
		})
		if err != nil {
			return table.Row{}, err
		}
		defer t[i].Drop(ctx)
	}
	var each [2][]float64
	for range rounds {
		ms, err := takeInTurn(ctx, t, w, reports)
		if err != nil {
			return table.Row{}, err
		}
		for i := range ms {
			each[i] = append(each[i], ms[i]...)
		}
	}
	hour, year := table.Median(each[0]), table.Median(each[1])
	return table.Row{
		Goal:         6,
		Name:         "taking in a report of leases a year old",
		Unit:         "ms",
		Ours:         year,
		Baseline:     hour,
		BaselineName: "leases an hour old",
		Ratio:        year / hour,
		Want:         "≤ 1.1",
		Met:          year <= 1.1*hour,
		Details:      each,
	}, nil
}

// takeInTurn takes in so many reports of the first kind's hosts and of the second's, one after the other and in turn,
// so that both meet the same machine, and says how long each took, ms.
func takeInTurn(ctx context.Context, t [2]*platform.Template, w [2]world, reports int) (ms [2][]float64, err error) {
	const warm = 5
	var all [2][]report
	var collect [2]*metering.Collector
	for i := range t {
		at, drop, err := t[i].Clone(ctx)
		if err != nil {
			return ms, err
		}
		defer drop()
		d, err := db.Open(ctx, db.Config{URL: at})
		if err != nil {
			return ms, err
		}
		defer d.Close()
		collect[i] = metering.NewCollector(d)
		for n := range reports + warm {
			more, err := w[i].reports(n, 1, false)
			if err != nil {
				return ms, err
			}
			all[i] = append(all[i], more...)
		}
	}
	for n := range all[0] {
		for k := range all {
			i := (n + k) % 2 // neither is always first
			began := time.Now()
			if err := take(ctx, collect[i], all[i][n]); err != nil {
				return ms, err
			}
			if n >= warm*len(w[i].hosts) {
				ms[i] = append(ms[i], float64(time.Since(began))/float64(time.Millisecond))
			}
		}
	}
	return ms, nil
}
