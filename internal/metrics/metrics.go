// Package metrics counts what a replica does, for Prometheus: requests, background jobs, reports of hosts, ingested
// segments and claims. docs/operations.md lists every metric and what to watch; deploy/grafana/muster.json draws them.
//
// The counters are the process's, as the Go runtime's are. Labels have few values: a route's pattern and never its
// path, a job's name, a kind; never an identifier.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var registry = prometheus.NewRegistry()

// Gatherer returns the process's metrics.
func Gatherer() prometheus.Gatherer { return registry }

// seconds are the buckets of histograms of short work, from 1 ms to 30 s.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	registry.MustRegister(c)
	return c
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	registry.MustRegister(g)
	return g
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	registry.MustRegister(h)
	return h
}

var (
	jobSeconds = histogram("muster_job_seconds", "Duration of one pass of a background job.", seconds, "job")
	jobPasses  = counter("muster_job_passes_total", "Passes of background jobs by result: ok or error.", "job", "result")
	jobDid     = counter("muster_job_rows_total", "Rows that background jobs worked on.", "job")
	jobOK      = gauge("muster_job_last_success_timestamp_seconds",
		"When a background job last made a pass without an error, in Unix seconds.", "job")
)

// Job records a pass of a background job that began at began, processed did rows and ended with err.
func Job(name string, began time.Time, did int, err error) {
	jobSeconds.WithLabelValues(name).Observe(time.Since(began).Seconds())
	jobDid.WithLabelValues(name).Add(float64(max(did, 0)))
	if err != nil {
		jobPasses.WithLabelValues(name, "error").Inc()
		return
	}
	jobPasses.WithLabelValues(name, "ok").Inc()
	jobOK.WithLabelValues(name).SetToCurrentTime()
}

var (
	syncSeconds = histogram("muster_host_sync_seconds", "Time to answer one report of a host.", seconds)
	syncs       = counter("muster_host_syncs_total", "Reports of hosts by result: ok, failed (a part was not taken and "+
		"comes again) or refused.", "result")
	syncFailed = counter("muster_host_sync_failures_total", "Parts of hosts' reports that were not taken.", "part")
)

// HostSync records the answer to a report that arrived at began. failed lists the parts that were not accepted.
func HostSync(began time.Time, failed []string) {
	syncSeconds.WithLabelValues().Observe(time.Since(began).Seconds())
	result := "ok"
	for _, part := range failed {
		syncFailed.WithLabelValues(part).Inc()
		result = "failed"
	}
	syncs.WithLabelValues(result).Inc()
}

// HostSyncRefused records a report that could not be parsed.
func HostSyncRefused() { syncs.WithLabelValues("refused").Inc() }

var (
	hostMessages = counter("muster_host_messages_total", "Messages of hosts by kind and result: handled, refused (too "+
		"much work waits, the host gets a time after which to try again) or dropped (the host no longer waits for the "+
		"answer).",
		"kind", "result")
	hostWaited = histogram("muster_host_message_wait_seconds", "Time that a message of a host waited to be handled.",
		seconds, "kind")
)

// HostMessage records what happened to a message of a host: result is handled, refused or dropped.
func HostMessage(kind, result string) { hostMessages.WithLabelValues(kind, result).Inc() }

// HostMessageWaited records how long a message waited before it was handled.
func HostMessageWaited(kind string, d time.Duration) {
	hostWaited.WithLabelValues(kind).Observe(d.Seconds())
}

var (
	ingestSeconds = histogram("muster_ingest_seconds", "Time to take in one delivery of usage segments: verify, store, "+
		"post.", seconds)
	segments = counter("muster_segments_total", "Usage segments by result: accepted, known (sent again) or refused.",
		"result")
)

// Ingest records a delivery of usage segments that was committed.
func Ingest(began time.Time, accepted, known, refused int) {
	ingestSeconds.WithLabelValues().Observe(time.Since(began).Seconds())
	segments.WithLabelValues("accepted").Add(float64(accepted))
	segments.WithLabelValues("known").Add(float64(known))
	segments.WithLabelValues("refused").Add(float64(refused))
}

var claims = counter("muster_claims_total", "Attempts to claim GPUs by kind and result: claimed or taken (by "+
	"another replica first).", "kind", "result")

// Claim records an attempt to claim GPUs for kind: quote, lease, own_use or maintenance.
func Claim(kind string, taken bool) {
	result := "claimed"
	if taken {
		result = "taken"
	}
	claims.WithLabelValues(kind, result).Inc()
}
