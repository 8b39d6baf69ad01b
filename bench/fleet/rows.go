package fleet

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/db"
)

// round is what one server did.
type round struct {
	Hosts     int     `json:"hosts"`
	ArriveS   float64 `json:"arrive_s"`   // until all hosts had connected and reported for the first time
	RestartS  float64 `json:"restart_s"`  // the same after a restart of the server
	PerSecond float64 `json:"per_second"` // quiet reports
	// CPU time of one host's arrival and of its return in ms: of this process with the hosts, and of PostgreSQL.
	ArriveOwnMS       float64 `json:"arrive_own_ms"`
	ArrivePostgresMS  float64 `json:"arrive_postgres_ms"`
	RestartOwnMS      float64 `json:"restart_own_ms"`
	RestartPostgresMS float64 `json:"restart_postgres_ms"`
	// CPU time of one quiet report in ms: of this process with the hosts, and of PostgreSQL.
	OwnMS      float64 `json:"own_ms"`
	PostgresMS float64 `json:"postgres_ms"`
	Idle       idle    `json:"idle"`
	// Wakes are the times from the commit of a change to its arrival at the host.
	Wakes    []time.Duration `json:"wakes"`
	Refused  int64           `json:"refused"`  // requests that were refused with TooMany
	Late     int64           `json:"late"`     // requests without an answer
	Sessions float64         `json:"sessions"` // per host, both times
}

const (
	atOnce  = 64 // reports under way
	measure = 8 * time.Second
)

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
	d, err := db.Open(ctx, db.Config{URL: at, MaxConns: 32})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b, err := newBare()
	if err != nil {
		return nil, err
	}
	beside, err := play(ctx, b, base, members, meter)
	if err != nil {
		return nil, fmt.Errorf("bare NATS: %w", err)
	}
	o := &ours{db: d}
	our, err := play(ctx, o, at, members, meter)
	if err != nil {
		return nil, err
	}
	if err := d.Pool.QueryRow(ctx, "SELECT avg(session)::float8 FROM host_status").Scan(&our.Sessions); err != nil {
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
	used := func(what string, ms, bare, most float64) table.Row {
		return row(11, "CPU of "+what+", with the host's own and PostgreSQL's", "ms", ms, bare,
			fmt.Sprintf("≤ %.0f ms", most), ms <= most)
	}
	return []table.Row{
		row(11, "all connect, send inventories and report", "s", our.ArriveS, beside.ArriveS, "≤ 45 s", our.ArriveS <= 45),
		used("an arrival", our.ArriveOwnMS+our.ArrivePostgresMS, beside.ArriveOwnMS, 9), // 45 s of two cores for 10,000
		row(11, "all report after a restart of the server", "s", our.RestartS, beside.RestartS, "≤ 30 s",
			our.RestartS <= 30),
		used("a return", our.RestartOwnMS+our.RestartPostgresMS, beside.RestartOwnMS, 6), // 30 s
		row(11, "sessions opened per host and start", "", our.Sessions/2, 1, "≤ 1.2", our.Sessions/2 <= 1.2),
		row(7, "quiet reports", "/s", our.PerSecond, beside.PerSecond, "≥ 3,000/s", our.PerSecond >= 3000),
		row(7, "CPU of a quiet report, with the host's own", "ms", our.OwnMS, beside.OwnMS, "≤ 0.25 ms more",
			our.OwnMS <= beside.OwnMS+0.25),
		row(7, "PostgreSQL's CPU of a quiet report", "ms", our.PostgresMS, 0.3, "≤ 0.3 ms", our.PostgresMS <= 0.3),
		row(7, "idle, CPU of the server with the hosts' own, of a core", "%", our.Idle.OwnPercent, beside.Idle.OwnPercent,
			"≤ 15 % more at 10,000 hosts", our.Idle.OwnPercent <= beside.Idle.OwnPercent+15),
		alone("idle, CPU of PostgreSQL, of a core", "%", our.Idle.PostgresPercent, 8, "≤ 8 % at 10,000 hosts"),
		alone("idle, WAL", "MB/s", our.Idle.WALPerSecond, 0.3, "≤ 0.3 MB/s at 10,000 hosts"),
		row(7, "live memory per host, with the host's own", "kB", our.Idle.MemoryKB, beside.Idle.MemoryKB, "≤ 1.3",
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

// play lets all hosts arrive at a server, report for a while, and come back after a restart.
func play(ctx context.Context, s server, at string, members []member, meter *platform.Meter) (r round, err error) {
	r.Hosts = len(members)
	memory := live()
	address, ca, err := s.start(ctx, 0)
	if err != nil {
		return r, err
	}
	running := true
	defer func() {
		if running {
			_ = s.stop(ctx)
		}
	}()
	began, cpu := time.Now(), meter.Read()
	c, err := connect(members, address, ca)
	if err != nil {
		return r, err
	}
	defer c.close()
	if err := c.arrive(ctx); err != nil {
		return r, err
	}
	r.ArriveS = time.Since(began).Seconds()
	r.ArriveOwnMS, r.ArrivePostgresMS = perHost(meter.Read().Sub(cpu), c)
	if err := r.measure(ctx, c, meter, at, memory); err != nil {
		return r, err
	}
	if err := s.stop(ctx); err != nil {
		return r, err
	}
	running = false
	u, err := url.Parse(address)
	if err != nil {
		return r, err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return r, err
	}
	began, cpu = time.Now(), meter.Read()
	if _, _, err := s.start(ctx, port); err != nil {
		return r, err
	}
	running = true
	if err := c.arrive(ctx); err != nil {
		return r, err
	}
	r.RestartS, r.Refused, r.Late = time.Since(began).Seconds(), c.refusals.Load(), c.late.Load()
	r.RestartOwnMS, r.RestartPostgresMS = perHost(meter.Read().Sub(cpu), c)
	if o, ok := s.(*ours); ok { // last: the hosts' reports do not know the revisions that this raises
		r.Wakes, err = c.wakeTimes(ctx, o.db, o)
	}
	return r, err
}

// perHost returns what each host of a crowd has used, in ms.
func perHost(used platform.CPU, c *crowd) (own, postgres float64) {
	n := float64(len(c.hosts)) / 1000
	return used.Own.Seconds() / n, used.Postgres.Seconds() / n
}

// measure is what a fleet costs that has arrived. memory is what was in use before it was there.
func (r *round) measure(ctx context.Context, c *crowd, meter *platform.Meter, at string, memory float64) error {
	if _, err := c.reports(ctx, atOnce, time.Second); err != nil { // also the first in their epoch
		return err
	}
	cpu, from := meter.Read(), time.Now()
	n, err := c.reports(ctx, atOnce, measure)
	if err != nil {
		return err
	}
	used := meter.Read().Sub(cpu)
	r.PerSecond = float64(n) / time.Since(from).Seconds()
	r.OwnMS, r.PostgresMS = used.Own.Seconds()*1000/float64(n), used.Postgres.Seconds()*1000/float64(n)
	memory = live() - memory
	if r.Idle, err = c.idle(ctx, meter, at); err != nil {
		return err
	}
	r.Idle.MemoryKB = memory / 1000 / float64(r.Hosts)
	return nil
}
