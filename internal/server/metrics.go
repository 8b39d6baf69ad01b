package server

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolStats exports the database pool's state.
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
