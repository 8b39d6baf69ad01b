package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// round is what one server did.
type round struct {
	Hosts     int     `json:"hosts"`
	ArriveS   float64 `json:"arrive_s"`   // until all hosts had connected and reported for the first time
	RestartS  float64 `json:"restart_s"`  // the same after the server was killed
	PerSecond float64 `json:"per_second"` // quiet reports
	Arrive    cost    `json:"arrive"`     // of one host
	Restart   cost    `json:"restart"`    // of one host
	Quiet     cost    `json:"quiet"`      // of one report
	Idle      idle    `json:"idle"`
	// Wakes are the times from the commit of a change to its arrival at the host.
	Wakes    []time.Duration `json:"wakes"`
	Refused  int64           `json:"refused"`  // requests that were refused with TooMany
	Late     int64           `json:"late"`     // requests without an answer
	Sessions float64         `json:"sessions"` // per host, both times
}

// cost is processor time in ms.
type cost struct {
	ServerMS   float64 `json:"server_ms"`
	HostsMS    float64 `json:"hosts_ms"`
	PostgresMS float64 `json:"postgres_ms"`
}

// platform returns what the platform's part of it is: that of the hosts is not.
func (c cost) platform() float64 { return c.ServerMS + c.PostgresMS }

// idle is what a fleet costs while nothing happens, of one core.
type idle struct {
	ServerPercent   float64 `json:"server_percent"`
	HostsPercent    float64 `json:"hosts_percent"`
	PostgresPercent float64 `json:"postgres_percent"`
	WALPerSecond    float64 `json:"wal_mb_per_second"`
	MemoryKB        float64 `json:"memory_kb"` // the server's live heap and stacks for each host
}

const (
	atOnce     = 64 // reports under way
	measureFor = 8 * time.Second
	idleFor    = 30 * time.Second
)

// How commits wake hosts: on a clock, each host in turn.
const (
	wakesPerSecond = 200
	wakes          = 2000
	waking         = 16 // connections
)

// EnvProfiles is a folder for profiles of the server's processor time while hosts arrive and return; without it, none
// are written.
const EnvProfiles = "MUSTER_FLEET_PROFILES"

// Rows measures a fleet that arrives at once, reports, loses its server and comes back.
func Rows(ctx context.Context, base string) ([]table.Row, error) {
	n, err := hosts()
	if err != nil {
		return nil, err
	}
	meter, err := platform.NewMeter(ctx, base)
	if err != nil {
		return nil, err
	}
	var members []member
	t, err := platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB, _ string) (err error) {
		members, err = enroll(ctx, d, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer t.Drop(ctx)
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	beside, err := (&system{start: Starting{Identity: identity}, meter: meter}).play(ctx, members)
	if err != nil {
		return nil, fmt.Errorf("bare NATS: %w", err)
	}
	o := &system{start: Starting{Database: at}, meter: meter, folder: os.Getenv(EnvProfiles)}
	our, err := o.play(ctx, members)
	if err != nil {
		return nil, err
	}
	c, err := pgx.Connect(ctx, at)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	if err := c.QueryRow(ctx, "SELECT avg(session)::float8 FROM host_status").Scan(&our.Sessions); err != nil {
		return nil, err
	}
	return rows(our, beside), nil
}

func rows(our, beside round) []table.Row {
	name := fmt.Sprintf("%d hosts: ", our.Hosts)
	details := map[string]round{"ours": our, "bare": beside}
	row := func(goal int, what, unit string, a, b float64, want string, met bool) table.Row {
		return table.Row{Goal: goal, Name: name + what, Unit: unit, Ours: a, Baseline: b, BaselineName: "bare NATS with TLS",
			Ratio: a / b, Want: want, Met: met, Details: details}
	}
	alone := func(what, unit string, a, most float64, want string) table.Row { // the baseline has no database
		return table.Row{Goal: 7, Name: name + what, Unit: unit, Ours: a, Baseline: most, BaselineName: "wanted",
			Ratio: a / most, Want: want, Met: a <= most, Details: details}
	}
	used := func(what string, our, bare cost, most float64) table.Row {
		return row(11, "CPU of "+what+", of the server and PostgreSQL", "ms", our.platform(), bare.platform(),
			fmt.Sprintf("≤ %.0f ms", most), our.platform() <= most)
	}
	return []table.Row{
		row(11, "all connect, send inventories and report", "s", our.ArriveS, beside.ArriveS, "≤ 45 s", our.ArriveS <= 45),
		used("an arrival", our.Arrive, beside.Arrive, 9), // 45 s of two cores for 10,000
		row(11, "all report after the server was killed", "s", our.RestartS, beside.RestartS, "≤ 30 s",
			our.RestartS <= 30),
		used("a return", our.Restart, beside.Restart, 3),
		row(11, "sessions opened per host and start", "", our.Sessions/2, 1, "≤ 1.2", our.Sessions/2 <= 1.2),
		row(7, "quiet reports", "/s", our.PerSecond, beside.PerSecond, "≥ 3,000/s", our.PerSecond >= 3000),
		row(7, "CPU of a quiet report, of the server", "ms", our.Quiet.ServerMS, beside.Quiet.ServerMS, "≤ 0.25 ms",
			our.Quiet.ServerMS <= 0.25),
		row(7, "CPU of a quiet report, of its host", "ms", our.Quiet.HostsMS, beside.Quiet.HostsMS, "", true),
		alone("PostgreSQL's CPU of a quiet report", "ms", our.Quiet.PostgresMS, 0.3, "≤ 0.3 ms"),
		row(7, "idle, CPU of the server, of a core", "%", our.Idle.ServerPercent, beside.Idle.ServerPercent,
			"≤ 15 % at 10,000 hosts", our.Idle.ServerPercent <= 15),
		alone("idle, CPU of PostgreSQL, of a core", "%", our.Idle.PostgresPercent, 8, "≤ 8 % at 10,000 hosts"),
		alone("idle, WAL", "MB/s", our.Idle.WALPerSecond, 0.3, "≤ 0.3 MB/s at 10,000 hosts"),
		row(7, "the server's live memory per host", "kB", our.Idle.MemoryKB, beside.Idle.MemoryKB, "≤ 1.3",
			our.Idle.MemoryKB <= 1.3*beside.Idle.MemoryKB),
		wakeRow(name, our.Wakes),
	}
}

// wakeRow is how soon a commit is at the host.
func wakeRow(name string, each []time.Duration) table.Row {
	s := platform.Summary(each, time.Second, len(each), platform.CPU{})
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return table.Row{Goal: 8, Name: fmt.Sprintf("%scommit to command, %d a second, p99", name, wakesPerSecond), Unit: "ms",
		Ours: ms(s.P99), Baseline: ms(s.P50), BaselineName: "its p50", Ratio: ms(s.P99) / ms(s.P50), Want: "≤ 10 ms",
		Met: s.P99 <= 10*time.Millisecond}
}

// system is a server, its hosts and the meters.
type system struct {
	start  Starting
	server *process
	fleet  fleet
	meter  *platform.Meter
	folder string // for profiles; "": none are written
}

// used is processor time.
type used struct{ server, hosts, postgres time.Duration }

// read returns the processor time used so far by the server's process, by those of hosts, and by PostgreSQL.
func (s *system) read() (u used, err error) {
	server, err := call[Usage](s.server, "Usage", false)
	if err != nil {
		return u, err
	}
	hosts, err := s.fleet.usage(false)
	return used{server.CPU, hosts.CPU, s.meter.Read().Postgres}, err
}

// since returns what was used since an earlier reading.
func (s *system) since(earlier used) (used, error) {
	now, err := s.read()
	return used{now.server - earlier.server, now.hosts - earlier.hosts, now.postgres - earlier.postgres}, err
}

// up starts the server's process.
func (s *system) up(ctx context.Context) (at Started, err error) {
	if s.server, err = spawn(ctx, argServer); err != nil {
		return at, err
	}
	if at, err = call[Started](s.server, "Start", s.start); err != nil {
		return at, err
	}
	u, err := url.Parse(at.Address)
	if err != nil {
		return at, err
	}
	s.start.Port, err = strconv.Atoi(u.Port())
	return at, err
}

// profiled does f while the server's processor time is profiled, if that is wanted.
func (s *system) profiled(name string, f func() error) error {
	if s.folder == "" || s.start.Database == "" {
		return f()
	}
	if _, err := call[None](s.server, "Profile", filepath.Join(s.folder, name+".pprof")); err != nil {
		return err
	}
	err := f()
	_, stop := call[None](s.server, "Profile", "")
	return errors.Join(err, stop)
}

// play lets all hosts arrive at a server, report for a while, and come back after the server was killed and started
// again.
func (s *system) play(ctx context.Context, members []member) (r round, err error) {
	r.Hosts = len(members)
	defer func() {
		s.fleet.stop()
		if s.server != nil {
			s.server.kill()
		}
	}()
	at, err := s.up(ctx)
	if err != nil {
		return r, err
	}
	empty, err := call[Usage](s.server, "Usage", true)
	if err != nil {
		return r, err
	}
	postgres, began := s.meter.Read().Postgres, time.Now()
	err = s.profiled("arrive", func() (err error) {
		if s.fleet, err = newFleet(ctx, members, at.Address, at.CA); err != nil {
			return err
		}
		_, err = each[None](s.fleet, "Arrive", None{})
		return err
	})
	if err != nil {
		return r, err
	}
	r.ArriveS = time.Since(began).Seconds()
	cost, err := s.since(used{server: empty.CPU, postgres: postgres})
	if err != nil {
		return r, err
	}
	r.Arrive = cost.perHost(r.Hosts)
	if err := s.measure(ctx, &r, empty.Memory); err != nil {
		return r, err
	}
	s.server.kill()
	before, began := s.meter.Read().Postgres, time.Now()
	hosts, err := s.fleet.usage(false)
	if err != nil {
		return r, err
	}
	if _, err := s.up(ctx); err != nil {
		return r, err
	}
	err = s.profiled("return", func() error {
		_, err := each[None](s.fleet, "Arrive", None{})
		return err
	})
	if err != nil {
		return r, err
	}
	r.RestartS = time.Since(began).Seconds()
	if cost, err = s.since(used{hosts: hosts.CPU, postgres: before}); err != nil {
		return r, err
	}
	r.Restart = cost.perHost(r.Hosts)
	troubles, err := each[Troubles](s.fleet, "Count", None{})
	for _, t := range troubles {
		r.Refused, r.Late = r.Refused+t.Refused, r.Late+t.Late
	}
	if err == nil && s.start.Database != "" { // last: the hosts' reports do not know the revisions that this raises
		r.Wakes, err = s.wakeTimes(ctx, members)
	}
	return r, err
}

// perHost returns what each of n hosts has cost.
func (u used) perHost(n int) cost {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(n) }
	return cost{ms(u.server), ms(u.hosts), ms(u.postgres)}
}

// measure is what a fleet costs that has arrived. empty is the memory of the server before it was there.
func (s *system) measure(ctx context.Context, r *round, empty float64) error {
	if _, err := s.fleet.reports(atOnce, time.Second); err != nil { // also the first in their epoch
		return err
	}
	before, err := s.read()
	if err != nil {
		return err
	}
	from := time.Now()
	n, err := s.fleet.reports(atOnce, measureFor)
	if err != nil {
		return err
	}
	took := time.Since(from)
	quiet, err := s.since(before)
	if err != nil {
		return err
	}
	r.PerSecond, r.Quiet = float64(n)/took.Seconds(), quiet.perHost(int(n))
	full, err := call[Usage](s.server, "Usage", true)
	if err != nil {
		return err
	}
	if r.Idle, err = s.idle(ctx); err != nil {
		return err
	}
	r.Idle.MemoryKB = (full.Memory - empty) / 1000 / float64(r.Hosts)
	return nil
}

// idle measures a fleet while nothing happens.
func (s *system) idle(ctx context.Context) (out idle, err error) {
	wal, err := s.wal(ctx)
	if err != nil {
		return out, err
	}
	before, err := s.read()
	if err != nil {
		return out, err
	}
	began := time.Now()
	if _, err := each[None](s.fleet, "Idle", idleFor); err != nil {
		return out, err
	}
	took := time.Since(began)
	cost, err := s.since(before)
	if err != nil {
		return out, err
	}
	after, err := s.wal(ctx)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(took) }
	out.ServerPercent, out.HostsPercent = percent(cost.server), percent(cost.hosts)
	out.PostgresPercent, out.WALPerSecond = percent(cost.postgres), (after-wal)/1e6/took.Seconds()
	return out, err
}

// wal returns how many bytes of WAL the database's server has written; 0 without one.
func (s *system) wal(ctx context.Context) (n float64, err error) {
	if s.start.Database == "" {
		return 0, nil
	}
	c, err := pgx.Connect(ctx, s.start.Database)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(ctx) }()
	err = c.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&n)
	return n, err
}

// wakeTimes returns how long after its commit each of many changes of desired state was at the host's agent. Each host
// gets at most one.
func (s *system) wakeTimes(ctx context.Context, members []member) ([]time.Duration, error) {
	n := min(wakes, len(members))
	hosts := make([]id.Host, n)
	for i := range hosts {
		hosts[i] = members[i*len(members)/n].Host.ID
	}
	committed, err := call[[]int64](s.server, "Wake", hosts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		all, err := each[[]int64](s.fleet, "Woken", None{})
		if err != nil {
			return nil, err
		}
		woken, lost := slices.Concat(all...), 0
		took := make([]time.Duration, n)
		for i := range took {
			at := woken[i*len(members)/n]
			if at == 0 {
				lost++
			}
			took[i] = time.Duration(at - committed[i])
		}
		if lost == 0 {
			return took, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d wakes did not arrive", lost, n)
		}
	}
}
