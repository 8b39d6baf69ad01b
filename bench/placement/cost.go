package placement

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/market/demand"
)

const (
	rounds    = 5
	decisions = 4000 // per round and fleet
	busy      = 0.8  // part of the fleet that is rented while it is measured
	copies    = 8    // of the data set's fleet in the large one: 1,213 × 8 = 9,704 hosts
)

// costRound is the time of one decision, placing and taking, in microseconds, on either fleet.
type costRound struct {
	Small float64 `json:"small_us"`
	Large float64 `json:"large_us"`
}

// Cost measures goal 3: the time of a decision on eight times the fleet compared with that on the fleet itself, both
// four fifths rented, with requests arriving and ending; by the market (prices, queries, an index) and by the packing
// policy of goal 2 alone (processors, memory, parts of GPUs).
func Cost(ctx context.Context, dir string) ([]table.Row, error) {
	machines, err := LoadMachines(dir)
	if err != nil {
		return nil, err
	}
	requests, err := LoadRequests(dir, "default")
	if err != nil {
		return nil, err
	}
	var out []table.Row
	for _, c := range []struct {
		name string
		time func(machines []Machine, requests []demand.Request, copies int, seed uint64) (float64, error)
	}{{"market.Place", timeMarket}, {"packing policy", timePacking}} {
		var each []costRound
		for round := range rounds {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			small, err := c.time(machines, requests, 1, uint64(round))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			large, err := c.time(machines, requests, copies, uint64(round))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			each = append(each, costRound{small, large})
		}
		out = append(out, costRow(c.name, each))
	}
	return out, nil
}

func costRow(name string, each []costRound) table.Row {
	var small, large []float64
	for _, r := range each {
		small, large = append(small, r.Small), append(large, r.Large)
	}
	r := table.Row{
		Goal:         3,
		Name:         "decision on 9,704 hosts, " + name,
		Unit:         "µs",
		Ours:         table.Median(large),
		Baseline:     table.Median(small),
		BaselineName: "1,213 hosts",
		Want:         "≤ 1.5",
		Details:      each,
	}
	r.Ratio = r.Ours / r.Baseline
	r.Met = r.Ratio <= 1.5
	return r
}

// timeMarket rents from a market until it is busy, then times requests that arrive as others end.
func timeMarket(machines []Machine, requests []demand.Request, copies int, seed uint64) (float64, error) {
	random := rand.New(rand.NewPCG(seed, 3))
	r := &running{snapshot: newSnapshot(machines, copies, random)}
	full := int(busy * float64(capacity(machines)*int64(copies)/demand.Whole))
	var asks []market.Request
	for i := range requests {
		if a, ok := requestOf(&requests[i]); ok {
			asks = append(asks, a)
		}
	}
	for r.gpus < full {
		if p, _ := market.Place(r.snapshot, asks[random.IntN(len(asks))]); len(p.Nodes) > 0 {
			r.add(p)
		}
	}
	runtime.GC()
	var spent time.Duration
	for range decisions {
		a := asks[random.IntN(len(asks))]
		start := time.Now()
		p, _ := market.Place(r.snapshot, a)
		if len(p.Nodes) == 0 {
			spent += time.Since(start)
			continue
		}
		r.add(p)
		spent += time.Since(start)
		for r.gpus > full {
			r.end(random)
		}
	}
	return micros(spent), nil
}

// timePacking fills a fleet by the packing policy until it is busy, then times further requests; so few of them that
// the fleet stays as busy.
func timePacking(machines []Machine, requests []demand.Request, copies int, seed uint64) (float64, error) {
	random := rand.New(rand.NewPCG(seed, 4))
	var all []Machine
	for range copies {
		all = append(all, machines...)
	}
	fleet := newOurs(all, requests).fleet
	for float64(fleet.Free()) > (1-busy)*float64(capacity(all)) {
		if !placeSome(fleet, requests, random, 100) {
			return 0, errors.New("the fleet is full before it is busy")
		}
	}
	runtime.GC()
	const few = decisions / 10
	start := time.Now()
	placeSome(fleet, requests, random, few)
	return micros(time.Since(start)) * decisions / few, nil
}

// placeSome lets n requests arrive and reports whether any found a place.
func placeSome(fleet *demand.Fleet, requests []demand.Request, random *rand.Rand, n int) (any bool) {
	for range n {
		_, ok := fleet.Place(requests[random.IntN(len(requests))])
		any = any || ok
	}
	return any
}

// micros is the time of one of the decisions.
func micros(total time.Duration) float64 { return float64(total.Nanoseconds()) / 1000 / decisions }
