package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/id"
)

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
// again; our server is killed again while processor time is stolen, and while clusters run.
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
	s.progress("arrived in %.1f s: %s", r.ArriveS, r.Arrive)
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
	s.progress("came back in %.1f s: %s", r.RestartS, r.Restart)
	troubles, err := each[Troubles](s.fleet, "Count", None{})
	for _, t := range troubles {
		r.Refused, r.Late = r.Refused+t.Refused, r.Late+t.Late
	}
	if err != nil || s.start.Database == "" {
		return r, err
	}
	if r.Sessions, err = s.sessions(ctx); err != nil {
		return r, err
	}
	if r.Wakes, err = s.wakeTimes(ctx, members); err != nil {
		return r, err
	}
	stolen, err := s.robbed(ctx)
	if err != nil {
		return r, fmt.Errorf("theft: %w", err)
	}
	r.AfterTheftS = stolen.Seconds()
	s.progress("came back %.1f s after the end of a theft", r.AfterTheftS)
	if r.Survived, err = s.survive(ctx, members); err != nil {
		return r, fmt.Errorf("running clusters: %w", err)
	}
	return r, nil
}

// progress reports what has been measured so far: the table comes at the end, minutes later.
func (s *system) progress(format string, args ...any) {
	who := "bare NATS"
	if s.start.Database != "" {
		who = "ours"
	}
	fmt.Fprintf(os.Stderr, "  %s: "+format+"\n", append([]any{who}, args...)...)
	if s.start.Database == "" {
		return
	}
	if n, err := call[map[string]float64](s.server, "Messages", None{}); err == nil {
		fmt.Fprintln(os.Stderr, "    messages since the server's start:", counts(n))
	}
}

// counts formats numbers by name: "connect handled 10000, inventory refused 12".
func counts(n map[string]float64) string {
	out := make([]string, 0, len(n))
	for _, name := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%s %.0f", name, n[name]))
	}
	return strings.Join(out, ", ")
}

// perHost returns what each of n hosts has cost.
func (u used) perHost(n int) cost {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(n) }
	return cost{ms(u.server), ms(u.hosts), ms(u.postgres)}
}

// measure is what a fleet costs that has arrived. empty is the memory of the server before it was there.
func (s *system) measure(ctx context.Context, r *round, empty float64) error {
	if err := s.analyze(ctx); err != nil {
		return err
	}
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
	err = s.profiled("idle", func() (err error) {
		r.Idle, err = s.idle(ctx)
		return err
	})
	if err != nil {
		return err
	}
	r.Idle.MemoryKB = (full.Memory - empty) / 1000 / float64(r.Hosts)
	s.progress("idle: %.1f %% of a core in the server, %.1f %% in PostgreSQL, %.2f MB/s of WAL, %.0f kB for each host",
		r.Idle.ServerPercent, r.Idle.PostgresPercent, r.Idle.WALPerSecond, r.Idle.MemoryKB)
	return nil
}

// analyze updates PostgreSQL's statistics, by which it plans. Autovacuum does so within a minute of an arrival; the
// benchmark does not wait for that.
func (s *system) analyze(ctx context.Context) error {
	return s.connected(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "ANALYZE")
		return err
	})
}

// connected calls f with a connection to the database; without a database it does nothing.
func (s *system) connected(ctx context.Context, f func(*pgx.Conn) error) error {
	if s.start.Database == "" {
		return nil
	}
	c, err := pgx.Connect(ctx, s.start.Database)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	return f(c)
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

// sessions returns how many sessions each host has had.
func (s *system) sessions(ctx context.Context) (n float64, err error) {
	err = s.connected(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT avg(session)::float8 FROM host_status").Scan(&n)
	})
	return n, err
}

// wal returns how many bytes of WAL the database's server has written; 0 without one.
func (s *system) wal(ctx context.Context) (n float64, err error) {
	err = s.connected(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&n)
	})
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
