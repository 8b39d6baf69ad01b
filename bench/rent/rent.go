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
	Rounds  int // of each; they alternate
	Warm    int // rents before the clock starts, per round
	Rents   int // timed, per round
	Clients int // at a time; also the connections of either side
	Hosts   int
	Nodes   int // per rent
	GPUs    int // per node
}

// Default is what the goal says, on a gang.
func Default() Config {
	return Config{Rounds: 5, Warm: 200, Rents: 600, Clients: 16, Hosts: 1000, Nodes: 2, GPUs: 4}
}

// Run is one measurement of a round.
type Run struct {
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
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
	t, err := platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB) (err error) {
		if _, err = platform.AddFleet(ctx, d, platform.Fleet{Hosts: c.Hosts, Operators: 20, Fabrics: 25}); err != nil {
			return err
		}
		renters, err = platform.AddRenters(ctx, d, 4*c.Clients, 1_000_000*money.Unit)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	defer t.Drop(ctx)
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
	clients := make([]*client, c.Clients)
	for i := range clients {
		if clients[i], err = dial(s.Addr); err != nil {
			return Run{}, nil, nil, err
		}
		defer clients[i].conn.Close()
	}
	names := make([]string, c.Warm+c.Rents)
	for i := range names {
		names[i] = fmt.Sprintf("bench-%06d", i)
	}
	do := func(from int) func(context.Context, int, int) error {
		return func(_ context.Context, worker, i int) error {
			return clients[worker].rent(renters[(from+i)%len(renters)], names[from+i], c.Nodes, c.GPUs)
		}
	}
	if _, _, err := load(ctx, c.Clients, c.Warm, do(0)); err != nil {
		return Run{}, nil, nil, err
	}
	each, all, err := load(ctx, c.Clients, c.Rents, do(c.Warm))
	if err != nil {
		return Run{}, nil, nil, err
	}
	recorded, columns, err := record(ctx, s.DB, names)
	return summary(each, all), recorded, columns, err
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
	each, all, err := load(ctx, c.Clients, c.Rents, do(recorded[c.Warm:]))
	return summary(each, all), err
}

func summary(each []time.Duration, all time.Duration) Run {
	s := slices.Sorted(slices.Values(each))
	at := func(q float64) time.Duration { return s[min(len(s)-1, int(q*float64(len(s))))] }
	return Run{PerSecond: float64(len(each)) / all.Seconds(), P50: at(0.5), P99: at(0.99)}
}
