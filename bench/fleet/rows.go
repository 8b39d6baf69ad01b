package fleet

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/db"
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
	// AfterTheftS is from the end of the theft of half of the processor time, during which the server was killed, until
	// all hosts had reported; 0: before.
	AfterTheftS float64  `json:"after_theft_s"`
	Survived    survived `json:"survived"`
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

func (c cost) String() string {
	return fmt.Sprintf("%.2f ms of the server's processor time for each host, %.2f of PostgreSQL's, %.2f of the host's",
		c.ServerMS, c.PostgresMS, c.HostsMS)
}

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

// EnvProfiles is a folder for profiles of the server's processor time while hosts arrive, idle and return; without
// it, none are written.
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
	ours := func(what, unit string, a, most float64, want string) table.Row { // the baseline stores nothing
		return table.Row{Goal: 11, Name: name + what, Unit: unit, Ours: a, Baseline: most, BaselineName: "wanted",
			Ratio: a / max(most, 1), Want: want, Met: a <= most, Details: details}
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
		ours("all report after half of the CPU was stolen for 60 s and the server killed, after the end of the theft", "s",
			our.AfterTheftS, 30, "≤ 30 s"),
		ours(fmt.Sprintf("%d running clusters lost after the server was killed", our.Survived.Clusters), "",
			float64(our.Survived.Lost), 0, "none"),
		ours("the same, with a gap in their confirmed time", "", float64(our.Survived.Gaps), 0, "none"),
		ours("the same, all hosts back", "s", our.Survived.AllBackS, 30, "≤ 30 s"),
		ours("the same, ready after the server was killed", "s", our.Survived.ReadyS, 2, "≤ 2 s"),
		ours("the same, slowest answer of /readyz", "s", our.Survived.SlowestS, 2, "≤ 2 s"),
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
