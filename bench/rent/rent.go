// Package rent measures goal 1: the rent transaction over HTTP, compared with the same rows and locks written directly.
//
// Ours is a whole replica: the REST API on loopback, authentication, the idempotency key, placement on the view in
// memory, checks under the hosts' locks, claims, leases, the hold in the ledger, the answer. The baseline writes what
// ours wrote, row by row and byte by byte, and takes the same row locks in the same order, over as many connections.
package rent

import (
	"context"
	"fmt"
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
	Paced    int // and then on a clock, at half the rate that was reached
	Clients  int // at a time; also the connections of either side
	Hosts    int
	Nodes    int // per rent
	GPUs     int // per node

	meter *platform.Meter
}

// Default is what the goal says, on a gang.
func Default() Config {
	return Config{
		Rounds:   5,
		Past:     5,
		Standing: 600,
		Warm:     150,
		Rents:    500,
		Paced:    400,
		Clients:  16,
		Hosts:    2000,
		Nodes:    2,
		GPUs:     4,
	}
}

// Result holds every round of each side.
type Result struct {
	Ours      []platform.Run `json:"ours"`
	Bare      []platform.Run `json:"bare"`      // statement by statement
	Pipelined []platform.Run `json:"pipelined"` // all statements of a transaction in one go
	// The same on a clock, at half of ours' rate; only the times mean something.
	OursPaced []platform.Run `json:"ours_paced"`
	BarePaced []platform.Run `json:"bare_paced"`
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
		r, err := c.ours(ctx, t, renters)
		if err != nil {
			return out, fmt.Errorf("ours: %w", err)
		}
		bare, barePaced, err := c.bare(ctx, t, r, (*writer).one)
		if err != nil {
			return out, fmt.Errorf("baseline: %w", err)
		}
		pipelined, _, err := c.bare(ctx, t, r, (*writer).pipelined)
		if err != nil {
			return out, fmt.Errorf("pipelined baseline: %w", err)
		}
		out.Ours, out.OursPaced = append(out.Ours, r.run), append(out.OursPaced, r.paced)
		out.Bare, out.BarePaced = append(out.Bare, bare), append(out.BarePaced, barePaced)
		out.Pipelined = append(out.Pipelined, pipelined)
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
		if _, _, err := platform.Load(ctx, c.Clients, c.Standing, tenants.rent(fmt.Sprintf("past-%d", turn), 0)); err != nil {
			return err
		}
		if turn == c.Past-1 {
			break
		}
		for _, sql := range []string{
			"UPDATE cluster SET state = 'released', ended_at = clock_timestamp(), settled_at = clock_timestamp(), due_at = " +
				"NULL WHERE ended_at IS NULL",
			"UPDATE node SET state = 'stopped' WHERE state <> 'stopped'",
			"UPDATE lease SET ended_at = clock_timestamp(), gone_at = clock_timestamp(), settled_at = clock_timestamp() " +
				"WHERE ended_at IS NULL",
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
		return t.clients[worker].rent(t.renters[n%len(t.renters)], fmt.Sprintf("%s-%06d", prefix, n), t.config.Nodes,
			t.config.GPUs)
	}
}

// round is one of ours, and what it wrote.
type round struct {
	run, paced platform.Run
	rents      []*recording
	columns    map[string][]string
}

func (c Config) ours(ctx context.Context, t *platform.Template, renters []platform.Renter) (*round, error) {
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	s, err := platform.Serve(ctx, at, int32(c.Clients))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	tenants, err := c.tenants(s.Addr, renters)
	if err != nil {
		return nil, err
	}
	defer tenants.close()
	var r round
	if r.run, r.paced, err = c.measure(ctx, 0, func(from int) func(context.Context, int,
		int) error {
		return tenants.rent("now", from)
	}); err != nil {
		return nil, err
	}
	r.rents, r.columns, err = record(ctx, s.DB, "now-%", c.Warm+c.Rents+c.Paced)
	return &r, err
}

// measure warms up, measures as fast as it goes, then on a clock: at the given rate, or half of what was reached. do
// makes the work of the rents from a number on.
func (c Config) measure(ctx context.Context, rate float64, do func(from int) func(context.Context, int,
	int) error) (run, paced platform.Run, err error) {
	if _, _, err = platform.Load(ctx, c.Clients, c.Warm, do(0)); err != nil {
		return run, paced, err
	}
	before := c.meter.Read()
	each, all, err := platform.Load(ctx, c.Clients, c.Rents, do(c.Warm))
	if err != nil {
		return run, paced, err
	}
	run = platform.Summary(each, all, c.Rents, c.meter.Read().Sub(before))
	if rate == 0 {
		rate = run.PerSecond / 2
	}
	before = c.meter.Read()
	if each, err = platform.Paced(ctx, c.Clients, c.Paced, rate, do(c.Warm+c.Rents)); err != nil {
		return run, paced, err
	}
	all = time.Duration(float64(c.Paced) / rate * float64(time.Second))
	return run, platform.Summary(each, all, c.Paced, c.meter.Read().Sub(before)), nil
}

func (c Config) bare(ctx context.Context, t *platform.Template, r *round,
	send func(*writer, context.Context, []step) error) (run, paced platform.Run, err error) {
	at, drop, err := t.Clone(ctx)
	if err != nil {
		return run, paced, err
	}
	defer drop()
	writers := make([]*writer, c.Clients)
	for i := range writers {
		if writers[i], err = connect(ctx, at); err != nil {
			return run, paced, err
		}
		defer func() { _ = writers[i].conn.Close(ctx) }()
	}
	return c.measure(ctx, r.paced.PerSecond, func(from int) func(context.Context, int, int) error {
		return func(ctx context.Context, worker, i int) error {
			return send(writers[worker], ctx, steps(r.rents[from+i], r.columns))
		}
	})
}
