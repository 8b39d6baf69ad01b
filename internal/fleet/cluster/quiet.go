package cluster

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// QuietReports takes reports in which nothing is new, which is most of what a fleet sends. Reports that arrive while
// others are being read are read together, with the same few statements however many there are.
//
// The time of the last report of a host without leases is kept in memory and written by Flush, for all hosts together.
// If the replica crashes in between, such a host seems to have reported once less, which no rule about hosts without
// leases depends on. What a host says of its leases decides what is billed and who was silent, so it is written before
// the host gets its answer.
type QuietReports struct {
	hosts *Hosts

	mu       sync.Mutex
	readers  int
	waiting  []*quietReport
	reported map[id.Host]bool // reported without leases since the last Flush
	// calm holds the hosts with leases whose last report was quiet, each with a hash of the leases in that report. Only
	// a report with the same leases may wait for others: the report that a lease has started looks just like a quiet one.
	calm map[id.Host]uint64
	seed maphash.Seed // for the hashes in calm
}

// quietReport is a report that waits to be read.
type quietReport struct {
	host    id.Host
	report  agentapi.Sync
	leases  []id.Lease // that the report names
	arrived time.Time
	within  time.Duration // the longest that the report may wait for others
	answer  QuietAnswer
	quiet   bool
	done    chan struct{}
}

// QuietAnswer is what a host must know after a quiet report.
type QuietAnswer struct {
	Revision     int64
	ControlEpoch int64
	Anchor       agentapi.Anchor // the newest of its boot
	Extensions   []agentapi.LeaseExtension
	Waited       time.Duration // how long the report waited for others; also set if the report is not quiet
}

// NewQuietReports returns QuietReports. It starts no goroutines; the caller must call Flush regularly and at the end.
func NewQuietReports(hosts *Hosts) *QuietReports {
	return &QuietReports{hosts: hosts, reported: map[id.Host]bool{}, calm: map[id.Host]uint64{}, seed: maphash.MakeSeed()}
}

// mayBeQuiet reports whether a report contains nothing that must be stored, as far as the report itself shows it.
func mayBeQuiet(s agentapi.Sync) bool {
	return s.Full && len(s.Segments) == 0 && len(s.Health) == 0 && len(s.Requalified) == 0 && len(s.Shared) == 0 &&
		s.Pulled == nil && s.EngineAway == nil && s.Protocol >= agentapi.OldestRented &&
		!slices.ContainsFunc(s.Leases, isNews)
}

// Take takes a report if it is quiet. If quiet is false, the report must be stored in the usual way; this is also so
// after a failure. The report may wait for others until enoughReports wait, but no longer than within. A report with
// leases does not wait if its host's last report was not quiet or had other leases. A report that is not read within
// readTimeout after that, or before ctx ends, is not quiet.
func (q *QuietReports) Take(ctx context.Context, h id.Host, s agentapi.Sync, within time.Duration) (a QuietAnswer,
	quiet bool) {
	if !mayBeQuiet(s) {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.calm, h)
		return QuietAnswer{}, false
	}
	wait, cancel := context.WithTimeout(ctx, within+readTimeout)
	defer cancel()
	ctx = context.WithoutCancel(ctx) // the read is for other reports, too
	q.mu.Lock()
	if known, ok := q.calm[h]; len(s.Leases) > 0 && !(ok && known == q.hash(s)) {
		within = 0
	}
	r := &quietReport{host: h, report: s, leases: named(s), arrived: time.Now(), within: within,
		done: make(chan struct{})}
	q.waiting = append(q.waiting, r)
	switch n := len(q.waiting); {
	case within <= 0 || n >= enoughReports:
		q.startReader(ctx)
	case n == 1:
		time.AfterFunc(within, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if len(q.waiting) > 0 && q.waiting[0] == r { // otherwise r has been read, and the next batch has its own timer
				q.startReader(ctx)
			}
		})
	}
	q.mu.Unlock()
	select {
	case <-r.done:
		q.noteCalm(r)
		return r.answer, r.quiet
	case <-wait.Done(): // the readers are behind
		q.giveUp(r)
		return QuietAnswer{Waited: within}, false
	}
}

// giveUp withdraws a report that no reader has taken in time. One that is being read may also be stored as quiet: the
// usual way stores the same again.
func (q *QuietReports) giveUp(r *quietReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(w *quietReport) bool { return w == r })
	delete(q.calm, r.host)
}

// noteCalm updates q.calm after a report has been read.
func (q *QuietReports) noteCalm(r *quietReport) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.quiet && len(r.report.Leases) > 0 {
		q.calm[r.host] = q.hash(r.report)
	} else {
		delete(q.calm, r.host)
	}
}

// hash returns a hash of the leases in a report. It does not depend on their order.
func (q *QuietReports) hash(s agentapi.Sync) (sum uint64) {
	for _, l := range s.Leases {
		sum += maphash.Comparable(q.seed, l.LeaseRef)
	}
	return sum
}

// startReader starts a reader, unless maxReaders run: they read until no report waits. Callers hold q.mu.
func (q *QuietReports) startReader(ctx context.Context) {
	if q.readers < maxReaders {
		q.readers++
		go q.readAll(ctx)
	}
}

// enoughReports is how many waiting reports are read at once. Larger batches save little more.
const enoughReports = 16

// maxReaders is how many batches are under way: one is compared while the database works on the other.
const maxReaders = 2

// readTimeout limits the time to read the reports that wait.
const readTimeout = 10 * time.Second

// readAll reads the waiting reports until there are none.
func (q *QuietReports) readAll(ctx context.Context) {
	for {
		q.mu.Lock()
		all := q.waiting
		q.waiting = nil
		if len(all) == 0 {
			q.readers--
		}
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
	began := time.Now()
	defer func() {
		for _, r := range all {
			r.answer.Waited = min(began.Sub(r.arrived), r.within)
			close(r.done)
		}
	}()
	rows, leases, err := q.readRows(ctx, all)
	if err != nil {
		return // the usual way fails, too, or names the cause
	}
	var leased []*leasedReport
	for _, row := range rows {
		r := all[row.Number]
		r.answer = QuietAnswer{Revision: row.Revision, ControlEpoch: row.ControlEpoch, Anchor: agentapi.Anchor{
			BootID: r.report.BootID, Number: row.Anchor, BootMS: row.BootMs, ServerMS: row.ServerMs,
		}}
		if len(r.report.Leases) == 0 {
			r.quiet = true
			q.mu.Lock()
			q.reported[r.host] = true
			q.mu.Unlock()
		} else if v := q.hosts.compare(r, row, leases[r.host]); v != nil {
			leased = append(leased, v)
			delete(leases, r.host) // another report of the same host is compared with what is stored after this one
		}
	}
	if len(leased) == 0 {
		return
	}
	if err := q.hosts.saveGood(ctx, leased); err != nil {
		q.hosts.log.Error("quiet reports were not stored together", "hosts", len(leased), "err", err)
	}
}

// readRows reads of which reports nothing needs to be stored but that they came, and the leases of the hosts that
// report leases.
func (q *QuietReports) readRows(ctx context.Context, all []*quietReport) (rows []dbq.QuietReportsRow,
	leases map[id.Host][]dbq.LeasesOfHostsRow, err error) {
	var p dbq.QuietReportsParams
	var leased []id.Host
	for i, r := range all {
		agent := host.AgentOf(r.host, r.report)
		p.Numbers, p.Hosts = append(p.Numbers, int32(i)), append(p.Hosts, id.UUIDs(r.host)...)
		p.Boots, p.BootMs = append(p.Boots, r.report.BootID), append(p.BootMs, r.report.BootMS)
		p.Revisions, p.Epochs = append(p.Revisions, r.report.Revision), append(p.Epochs, r.report.ControlEpoch)
		p.Versions = append(p.Versions, host.VersionOf(r.report))
		p.Protocols = append(p.Protocols, int32(r.report.Protocol))
		p.Capabilities = append(p.Capabilities, "{"+strings.Join(agent.Capabilities, ",")+"}")
		p.States, p.UpdateVersions = append(p.States, agent.UpdateState), append(p.UpdateVersions, agent.UpdateVersion)
		p.Tries, p.Details = append(p.Tries, agent.UpdateTry), append(p.Details, agent.UpdateDetail)
		p.Leased = append(p.Leased, len(r.report.Leases) > 0)
		if len(r.report.Leases) > 0 {
			leased = append(leased, r.host)
		}
	}
	b := &pgx.Batch{}
	db.Read(b, &rows, (*dbq.Queries).QuietReports, p)
	var found []dbq.LeasesOfHostsRow
	if len(leased) > 0 {
		db.Read(b, &found, (*dbq.Queries).LeasesOfHosts, id.UUIDs(leased...))
	}
	if err := db.Send(ctx, q.hosts.db.Q, b); err != nil {
		return nil, nil, err
	}
	leases = make(map[id.Host][]dbq.LeasesOfHostsRow, len(leased))
	for _, l := range found {
		leases[l.HostID] = append(leases[l.HostID], l)
	}
	return rows, leases, nil
}

// Flush writes the times of the quiet reports of hosts without leases.
func (q *QuietReports) Flush(ctx context.Context) error {
	q.mu.Lock()
	reported := q.reported
	q.reported = map[id.Host]bool{}
	q.mu.Unlock()
	if len(reported) == 0 {
		return nil
	}
	return host.TouchHosts(ctx, q.hosts.db, slices.SortedFunc(maps.Keys(reported), id.Host.Compare))
}
