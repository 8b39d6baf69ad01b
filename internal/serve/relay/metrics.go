package relay

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

type counters struct {
	packets, bytes atomic.Uint64

	mu      sync.Mutex
	dropped map[string]uint64
}

// drop counts a datagram that was not carried, by reason.
func (c *counters) drop(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == nil {
		c.dropped = map[string]uint64{}
	}
	c.dropped[reason]++
}

// Sessions returns how many ranks are currently connected.
func (r *Relay) Sessions() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.byRank)
}

// Carried returns how many packets and bytes were carried.
func (r *Relay) Carried() (packets, bytes uint64) {
	return r.count.packets.Load(), r.count.bytes.Load()
}

// Dropped returns how many datagrams were dropped for a reason: malformed, unknown (no hello, or its token has ended),
// absent (the other rank is not connected), rate, token, epoch, full, send.
func (r *Relay) Dropped(reason string) uint64 {
	r.count.mu.Lock()
	defer r.count.mu.Unlock()
	return r.count.dropped[reason]
}

var (
	sessionsDesc = prometheus.NewDesc("muster_relay_sessions", "Ranks that are reachable through this relay.", nil, nil)
	packetsDesc  = prometheus.NewDesc("muster_relay_packets_total", "Packets carried.", nil, nil)
	bytesDesc    = prometheus.NewDesc("muster_relay_bytes_total", "Bytes carried, headers of the relay included.", nil,
		nil)
	droppedDesc = prometheus.NewDesc("muster_relay_dropped_total", "Datagrams not carried.", []string{"reason"}, nil)
)

// Describe and Collect make the relay a Prometheus collector.
func (r *Relay) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sessionsDesc, packetsDesc, bytesDesc, droppedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *Relay) Collect(ch chan<- prometheus.Metric) {
	packets, bytes := r.Carried()
	ch <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(r.Sessions()))
	ch <- prometheus.MustNewConstMetric(packetsDesc, prometheus.CounterValue, float64(packets))
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(bytes))
	r.count.mu.Lock()
	defer r.count.mu.Unlock()
	for reason, n := range r.count.dropped {
		ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(n), reason)
	}
}
