package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolStats exports the state of a database pool.
func poolStats(p *pgxpool.Pool) prometheus.Collector { return pool{p} }

type pool struct{ p *pgxpool.Pool }

var (
	connsDesc = prometheus.NewDesc("muster_db_connections", "Connections to PostgreSQL by state.", []string{"state"}, nil)
	waitDesc  = prometheus.NewDesc("muster_db_wait_seconds_total", "Time spent waiting for a connection.", nil, nil)
)

func (c pool) Describe(ch chan<- *prometheus.Desc) { ch <- connsDesc; ch <- waitDesc }

func (c pool) Collect(ch chan<- prometheus.Metric) {
	s := c.p.Stat()
	for state, n := range map[string]int32{"idle": s.IdleConns(), "used": s.AcquiredConns(), "max": s.MaxConns()} {
		ch <- prometheus.MustNewConstMetric(connsDesc, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(waitDesc, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
}

// platformState exports what the database holds now: queues, clusters, claims, hosts. Each replica exports the same
// values, so do not sum over replicas. Each value is read through a partial index of open rows; none grows with the
// past.
func platformState(p *pgxpool.Pool, log *slog.Logger) prometheus.Collector { return platform{p, log} }

type platform struct {
	p   *pgxpool.Pool
	log *slog.Logger
}

var (
	queueDesc = prometheus.NewDesc("muster_queue_length",
		"Rows that wait in a queue, up to 10000.", []string{"queue"}, nil)
	overdueDesc = prometheus.NewDesc("muster_queue_overdue_seconds",
		"How long the oldest row of a queue has been due; 0: none is.", []string{"queue"}, nil)
	clustersDesc = prometheus.NewDesc("muster_clusters",
		"Clusters that are not over, by state.", []string{"state"}, nil)
	claimsDesc = prometheus.NewDesc("muster_gpus_claimed",
		"GPUs with a claim, by kind: quote, lease, own_use or maintenance.", []string{"kind"}, nil)
	partitionsDesc = prometheus.NewDesc("muster_partitions", "Tables with monthly partitions that lack the partition of "+
		"next month (missing), or keep rows in the partition of what fits in no month (default).", []string{"state"}, nil)
	flawedDesc = prometheus.NewDesc("muster_store_packs", "Packs that are needed and that the store has lost, has "+
		"damaged, or does not answer for (silent).", []string{"state"}, nil)
	scrubDesc = prometheus.NewDesc("muster_store_unread_seconds",
		"How long ago the pack of the store was read back that was not read for the longest time.", nil, nil)
	listedDesc = prometheus.NewDesc("muster_store_list_timestamp_seconds",
		"When the store was last listed from its first object to its last one.", nil, nil)
	hostsDesc = prometheus.NewDesc("muster_hosts_connected", "Hosts that are connected to any replica.", nil, nil)
)

// queues lists the queues of the database, each with the statement for its length and the age of its oldest due row.
var queues = map[string]string{
	"stripe_outbox": `SELECT count(*), min(next_at) FROM (SELECT next_at FROM stripe_outbox WHERE state IN ('pending',
		'sent', 'unknown') ORDER BY next_at LIMIT 10000) q`,
	"stripe_events": `SELECT count(*), min(next_at) FROM (SELECT next_at FROM stripe_event WHERE processed_at IS NULL
		ORDER BY next_at LIMIT 10000) q`,
	"mail": `SELECT count(*), min(next_at) FROM (SELECT next_at FROM mail WHERE sent_at IS NULL AND failed_at IS
		NULL ORDER BY next_at LIMIT 10000) q`,
	"clusters": `SELECT count(*), min(due_at) FROM (SELECT due_at FROM cluster WHERE due_at IS NOT NULL ORDER BY
		due_at LIMIT 10000) q`,
	"contested_gpus": `SELECT count(*), min(created_at) FROM (SELECT created_at FROM gpu WHERE contest = 'challenger' AND
		removed_at IS NULL AND NOT EXISTS (SELECT FROM gpu_award a WHERE a.uuid = gpu.uuid) ORDER BY created_at LIMIT 10000) q`,
	"dead_letters": `SELECT count(*), min(failing_since) FROM (SELECT failing_since FROM dead_letter ORDER BY
		failing_since LIMIT 10000) q`,
}

func (c platform) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queueDesc, overdueDesc, clustersDesc, claimsDesc, hostsDesc, partitionsDesc,
		flawedDesc, scrubDesc, listedDesc} {
		ch <- d
	}
}

// Collect omits what cannot be read: while the database is unavailable the other metrics are still exported.
func (c platform) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for name, sql := range queues {
		var n int64
		var oldest *time.Time
		if err := c.p.QueryRow(ctx, sql).Scan(&n, &oldest); err != nil {
			c.log.Warn("metrics: read a queue", "queue", name, "err", err)
			return
		}
		overdue := 0.0
		if oldest != nil {
			overdue = max(0, time.Since(*oldest).Seconds())
		}
		ch <- prometheus.MustNewConstMetric(queueDesc, prometheus.GaugeValue, float64(n), name)
		ch <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, overdue, name)
	}
	c.byLabel(ctx, ch, clustersDesc, `SELECT state, count(*) FROM cluster WHERE due_at IS NOT NULL GROUP BY state`)
	c.byLabel(ctx, ch, claimsDesc, `SELECT kind, count(*) FROM gpu_claim WHERE ended_at IS NULL GROUP BY kind`)
	c.byLabel(ctx, ch, partitionsDesc, `SELECT v.state, v.n FROM month_partitions_state() s
		CROSS JOIN LATERAL (VALUES ('missing', s.missing), ('default', s.in_default)) v (state, n)`)
	c.byLabel(ctx, ch, flawedDesc, `SELECT CASE WHEN lost_at IS NULL THEN 'silent' WHEN damaged THEN 'damaged' ELSE 'lost' END,
		count(*) FROM data_pack WHERE state = 'live' AND retry_at IS NOT NULL GROUP BY 1`)
	c.seconds(ctx, ch, scrubDesc, `SELECT extract(epoch FROM clock_timestamp() - read_at)::float8 FROM data_pack
		WHERE state = 'live' AND retry_at IS NULL ORDER BY read_at LIMIT 1`)
	c.seconds(ctx, ch, listedDesc, `SELECT extract(epoch FROM list_ended)::float8 FROM data_check
		WHERE list_ended IS NOT NULL`)
	var hosts int64
	if err := c.p.QueryRow(ctx, `SELECT count(*) FROM host_status WHERE connected`).Scan(&hosts); err != nil {
		c.log.Warn("metrics: count hosts", "err", err)
		return
	}
	ch <- prometheus.MustNewConstMetric(hostsDesc, prometheus.GaugeValue, float64(hosts))
}

// seconds exports a value that may not exist yet.
func (c platform) seconds(ctx context.Context, ch chan<- prometheus.Metric, d *prometheus.Desc, sql string) {
	var s float64
	switch err := c.p.QueryRow(ctx, sql).Scan(&s); {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		c.log.Warn("metrics: read a moment", "err", err)
	default:
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, s)
	}
}

func (c platform) byLabel(ctx context.Context, ch chan<- prometheus.Metric, d *prometheus.Desc, sql string) {
	rows, err := c.p.Query(ctx, sql)
	if err != nil {
		c.log.Warn("metrics: read counts", "err", err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var label string
		var n int64
		if err := rows.Scan(&label, &n); err != nil {
			c.log.Warn("metrics: read counts", "err", err)
			return
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), label)
	}
	if err := rows.Err(); err != nil {
		c.log.Warn("metrics: read counts", "err", err)
	}
}
