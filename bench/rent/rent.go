// Package rent measures goal 1: the rent transaction over HTTP, beside the same rows and locks written bare.
//
// Ours is a whole replica: the REST face on loopback, authentication, the idempotency key, placement on the view in
// memory, checks under the hosts' locks, claims, leases, the hold in the books, the answer. The baseline writes what
// ours wrote, row by row and byte by byte, and takes the same row locks in the same order, over as many connections.
package rent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// Config says how much is measured.
type Config struct {
	Rounds   int // of each; they alternate
	Past     int // times that many rents were made before, to fill the tables
	Standing int // of them each time; the last ones are still running
	Warm     int // rents before the clock starts, per round
	Rents    int // timed, per round
	Clients  int // at a time; also the connections of either side
	Hosts    int
	Nodes    int // per rent
	GPUs     int // per node

	meter *platform.Meter
}

// Default is what the goal says, on a gang.
func Default() Config {
	return Config{Rounds: 5, Past: 5, Standing: 600, Warm: 200, Rents: 600, Clients: 16, Hosts: 1500, Nodes: 2, GPUs: 4}
}

// Run is one measurement of a round.
type Run struct {
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	// Processor time per rent: of this process, load included, and of PostgreSQL.
	OwnCPU      time.Duration `json:"own_cpu_ns"`
	PostgresCPU time.Duration `json:"postgres_cpu_ns"`
}

// Result holds every round of each side.
type Result struct {
	Ours      []Run `json:"ours"`
	Bare      []Run `json:"bare"`      // statement by statement
	Pipelined []Run `json:"pipelined"` // all statements of a transaction in one go
}

// Measure runs it against the PostgreSQL server at base.
func Measure(ctx context.Context, base string, c Config) (Result, error) {
	var renters []platform.Renter
	t, err := platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB, at string) (err error) {
		if _, err = platform.AddFleet(ctx, d, platform.Fleet{Hosts: c.Hosts, Operators: 20, Fabrics: 25}); err != nil {
			return err
		}
		if renters, err = platform.AddRenters(ctx, d, 4*c.Clients, 1_000_000*money.Unit); err != nil {
			return err
		}
		return c.past(ctx, d, at, renters)
	})
	if err != nil {
		return Result{}, err
	}
	defer t.Drop(ctx)
	if c.meter, err = platform.NewMeter(ctx, base); err != nil {
		return Result{}, err
	}
	var out Result
	for range c.Rounds {
		run, recorded, columns, err := c.ours(ctx, t, renters)
		if err != nil {
			return out, fmt.Errorf("ours: %w", err)
		}
		out.Ours = append(out.Ours, run)
		for _, b := range []struct {
			runs *[]Run
			send func(*writer, context.Context, []step) error
		}{{&out.Bare, (*writer).one}, {&out.Pipelined, (*writer).pipelined}} {
			run, err := c.bare(ctx, t, recorded, columns, b.send)
			if err != nil {
				return out, fmt.Errorf("baseline: %w", err)
			}
			*b.runs = append(*b.runs, run)
		}
	}
	return out, nil
}

// past rents a good part of the fleet out a few times and ends all but the last turn, so that tables and statistics are
// those of a platform in use: on empty ones PostgreSQL plans for tables that stay small.
func (c Config) past(ctx context.Context, d *db.DB, at string, renters []platform.Renter) error {
	s, err := platform.Serve(ctx, at, int32(c.Clients))
	if err != nil {
		return err
	}
	defer s.Stop()
	tenants, err := c.tenants(s.Addr, renters)
	if err != nil {
		return err
	}
	defer tenants.close()
	for turn := range c.Past {
		if _, _, err := load(ctx, c.Clients, c.Standing, tenants.rent(fmt.Sprintf("past-%d", turn), 0)); err != nil {
			return err
		}
		if turn == c.Past-1 {
			break
		}
		for _, sql := range []string{
			"UPDATE cluster SET state = 'released', ended_at = clock_timestamp(), settled_at = clock_timestamp(), due_at = NULL WHERE ended_at IS NULL",
			"UPDATE node SET state = 'stopped' WHERE state <> 'stopped'",
			"UPDATE lease SET ended_at = clock_timestamp(), gone_at = clock_timestamp(), settled_at = clock_timestamp() WHERE ended_at IS NULL",
			"UPDATE gpu_claim SET ended_at = clock_timestamp(), end_reason = 'released' WHERE ended_at IS NULL",
		} {
			if _, err := d.Pool.Exec(ctx, sql); err != nil {
				return err
			}
		}
	}
	return nil
}

// tenants are renters' programs, one per connection.
type tenants struct {
	config  Config
	clients []*client
	renters []platform.Renter
}

func (c Config) tenants(addr string, renters []platform.Renter) (*tenants, error) {
	t := &tenants{config: c, renters: renters}
	for range c.Clients {
		cl, err := dial(addr)
		if err != nil {
			t.close()
			return nil, err
		}
		t.clients = append(t.clients, cl)
	}
	return t, nil
}

func (t *tenants) close() {
	for _, c := range t.clients {
		c.conn.Close()
	}
}

// rent is the load's work: rent number i is the (from+i)-th under its prefix.
func (t *tenants) rent(prefix string, from int) func(context.Context, int, int) error {
	return func(_ context.Context, worker, i int) error {
		n := from + i
		return t.clients[worker].rent(t.renters[n%len(t.renters)], fmt.Sprintf("%s-%06d", prefix, n), t.config.Nodes, t.config.GPUs)
	}
}

func (c Config) ours(ctx context.Context, t *platform.Template, renters []platform.Renter) (Run, []*recording, map[string][]string, error) {
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return Run{}, nil, nil, err
	}
	defer drop()
	s, err := platform.Serve(ctx, at, int32(c.Clients))
	if err != nil {
		return Run{}, nil, nil, err
	}
	defer s.Stop()
	tenants, err := c.tenants(s.Addr, renters)
	if err != nil {
		return Run{}, nil, nil, err
	}
	defer tenants.close()
	if _, _, err := load(ctx, c.Clients, c.Warm, tenants.rent("now", 0)); err != nil {
		return Run{}, nil, nil, err
	}
	before := c.meter.Read()
	each, all, err := load(ctx, c.Clients, c.Rents, tenants.rent("now", c.Warm))
	if err != nil {
		return Run{}, nil, nil, err
	}
	run := summary(each, all, c.meter.Read().Sub(before))
	recorded, columns, err := record(ctx, s.DB, "now-%", c.Warm+c.Rents)
	return run, recorded, columns, err
}

func (c Config) bare(ctx context.Context, t *platform.Template, recorded []*recording, columns map[string][]string,
	send func(*writer, context.Context, []step) error) (Run, error) {
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return Run{}, err
	}
	defer drop()
	writers := make([]*writer, c.Clients)
	for i := range writers {
		if writers[i], err = connect(ctx, at); err != nil {
			return Run{}, err
		}
		defer writers[i].conn.Close(ctx)
	}
	do := func(part []*recording) func(context.Context, int, int) error {
		return func(ctx context.Context, worker, i int) error {
			return send(writers[worker], ctx, steps(part[i], columns))
		}
	}
	if _, _, err := load(ctx, c.Clients, c.Warm, do(recorded[:c.Warm])); err != nil {
		return Run{}, err
	}
	before := c.meter.Read()
	each, all, err := load(ctx, c.Clients, c.Rents, do(recorded[c.Warm:]))
	return summary(each, all, c.meter.Read().Sub(before)), err
}

func summary(each []time.Duration, all time.Duration, used platform.CPU) Run {
	s := slices.Sorted(slices.Values(each))
	at := func(q float64) time.Duration { return s[min(len(s)-1, int(q*float64(len(s))))] }
	n := time.Duration(len(each))
	return Run{
		PerSecond: float64(len(each)) / all.Seconds(), P50: at(0.5), P99: at(0.99), OwnCPU: used.Own / n, PostgresCPU: used.Postgres / n,
	}
}
