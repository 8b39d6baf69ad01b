package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// QuietReports takes reports of hosts without leases in which nothing is new, which is most of what an idle fleet
// sends. Reports that arrive while others are being read are read together with one statement. When each host was last
// heard is kept in memory and written by Flush, for all hosts together. If the replica crashes in between, such a host
// seems to have reported once less, which no rule about hosts without leases depends on.
type QuietReports struct {
	db *db.DB

	mu       sync.Mutex
	reading  bool
	waiting  []*quietReport
	reported map[id.Host]bool // reported since the last Flush
}

// quietReport is a report that waits to be read.
type quietReport struct {
	host   id.Host
	report agentapi.Sync
	answer QuietAnswer
	quiet  bool
	done   chan struct{}
}

// QuietAnswer is what a host must know after a quiet report.
type QuietAnswer struct {
	Revision     int64
	ControlEpoch int64
	Anchor       agentapi.Anchor // the newest of its boot
}

// NewQuietReports returns QuietReports. It starts no goroutines; the caller must call Flush regularly and at the end.
func NewQuietReports(d *db.DB) *QuietReports {
	return &QuietReports{db: d, reported: map[id.Host]bool{}}
}

// mayBeQuiet reports whether a report contains nothing that must be stored, as far as the report itself shows it.
func mayBeQuiet(s agentapi.Sync) bool {
	return s.Full && len(s.Leases) == 0 && len(s.Segments) == 0 && len(s.Health) == 0 && s.Pulled == nil &&
		s.EngineAway == nil && s.Protocol >= agentapi.OldestRented
}

// Take takes a report if it is quiet. If quiet is false, the report must be stored in the usual way; this is also so
// after a failure.
func (q *QuietReports) Take(ctx context.Context, h id.Host, s agentapi.Sync) (a QuietAnswer, quiet bool) {
	if !mayBeQuiet(s) {
		return QuietAnswer{}, false
	}
	r := &quietReport{host: h, report: s, done: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	if !q.reading {
		q.reading = true
		go q.readAll(context.WithoutCancel(ctx)) // it reads for others, too
	}
	q.mu.Unlock()
	<-r.done // within readTimeout
	return r.answer, r.quiet
}

// readTimeout limits the time to read the reports that wait.
const readTimeout = 10 * time.Second

// readAll reads the waiting reports until there are none.
func (q *QuietReports) readAll(ctx context.Context) {
	for {
		q.mu.Lock()
		all := q.waiting
		q.waiting = nil
		q.reading = len(all) > 0
		q.mu.Unlock()
		if len(all) == 0 {
			return
		}
		q.read(ctx, all)
	}
}

// read finds out which reports are quiet. After a failure none is.
func (q *QuietReports) read(ctx context.Context, all []*quietReport) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	defer func() {
		for _, r := range all {
			close(r.done)
		}
	}()
	var p dbq.QuietReportsParams
	for i, r := range all {
		agent := host.AgentOf(r.host, r.report)
		p.Numbers, p.Hosts = append(p.Numbers, int32(i)), append(p.Hosts, uuids(r.host)...)
		p.Boots, p.BootMs = append(p.Boots, r.report.BootID), append(p.BootMs, r.report.BootMS)
		p.Revisions, p.Epochs = append(p.Revisions, r.report.Revision), append(p.Epochs, r.report.ControlEpoch)
		p.Versions = append(p.Versions, host.VersionOf(r.report))
		p.Protocols = append(p.Protocols, int32(r.report.Protocol))
		p.Capabilities = append(p.Capabilities, "{"+strings.Join(agent.Capabilities, ",")+"}")
		p.States, p.UpdateVersions = append(p.States, agent.UpdateState), append(p.UpdateVersions, agent.UpdateVersion)
		p.Tries, p.Details = append(p.Tries, agent.UpdateTry), append(p.Details, agent.UpdateDetail)
	}
	rows, err := q.db.Q.QuietReports(ctx, p)
	if err != nil {
		return // the usual way fails, too, or tells why not
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, row := range rows {
		r := all[row.Number]
		r.quiet = true
		r.answer = QuietAnswer{Revision: row.Revision, ControlEpoch: row.ControlEpoch, Anchor: agentapi.Anchor{
			BootID: r.report.BootID, Number: row.Anchor, BootMS: row.BootMs, ServerMS: row.ServerMs,
		}}
		q.reported[r.host] = true
	}
}

// Flush writes that the hosts of quiet reports were heard.
func (q *QuietReports) Flush(ctx context.Context) error {
	q.mu.Lock()
	reported := q.reported
	q.reported = map[id.Host]bool{}
	q.mu.Unlock()
	if len(reported) == 0 {
		return nil
	}
	return host.TouchHosts(ctx, q.db, slices.SortedFunc(maps.Keys(reported), id.Host.Compare))
}
