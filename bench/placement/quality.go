package placement

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/fleet/market/demand"
)

// policies are those that are compared, ours last.
var policies = []struct {
	name string
	make func([]Machine, []demand.Request) policy
}{
	{"first-fit", func(m []Machine, _ []demand.Request) policy { return newRanked(m, firstFit{}) }},
	{"best-fit", func(m []Machine, _ []demand.Request) policy { return newRanked(m, bestFit{}) }},
	{"FGD", func(m []Machine, r []demand.Request) policy { return newRanked(m, newFGD(r)) }},
	{"ours", func(m []Machine, r []demand.Request) policy { return newOurs(m, r) }},
}

// allocation is the allocated GPU % of each policy on one workload, per seed.
type allocation struct {
	Workload     string               `json:"workload"`
	Percent      map[string][]float64 `json:"percent"`
	PublishedFGD float64              `json:"published_fgd,omitempty"` // by the paper's artefact, mean of its 10 seeds
}

// Quality measures goal 2: every policy fills the same fleet with the same requests in the same order, per seed.
func Quality(ctx context.Context, dir string, seeds int) ([]table.Row, error) {
	fleet, err := LoadMachines(dir)
	if err != nil {
		return nil, err
	}
	published, err := publishedFGD(dir)
	if err != nil {
		return nil, err
	}
	var rows []table.Row
	for _, workload := range Workloads {
		requests, err := LoadRequests(dir, workload)
		if err != nil {
			return nil, err
		}
		a := allocation{workload, map[string][]float64{}, published[workload]}
		if err := a.measure(ctx, fleet, requests, seeds); err != nil {
			return nil, err
		}
		rows = append(rows, a.row())
	}
	return rows, nil
}

func (a *allocation) measure(ctx context.Context, fleet []Machine, requests []demand.Request, seeds int) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range policies {
		a.Percent[p.name] = make([]float64, seeds)
		for seed := range seeds {
			g.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				percent := fill(fleet, Arrivals(requests, fleet, uint64(seed)), p.make(fleet, requests))
				mu.Lock()
				defer mu.Unlock()
				a.Percent[p.name][seed] = percent
				return nil
			})
		}
	}
	return g.Wait()
}

// row compares ours with the best of the others. The goal is met when ours is above every other on every seed's mean.
func (a *allocation) row() table.Row {
	r := table.Row{Goal: 2, Name: "allocated GPU, openb " + a.Workload, Unit: "%", Want: "> every policy", Details: a}
	for _, p := range policies {
		mean := table.Mean(a.Percent[p.name])
		switch {
		case p.name == "ours":
			r.Ours = mean
		case mean > r.Baseline:
			r.Baseline, r.BaselineName = mean, p.name
		}
	}
	r.Ratio = r.Ours / r.Baseline
	r.Met = r.Ours > r.Baseline
	return r
}

// publishedFGD is the figure of the paper's artefact per workload.
func publishedFGD(dir string) (map[string]float64, error) {
	f, err := os.Open(filepath.Join(dir, "published_allocation.csv"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, line := range lines[1:] {
		if out[line[0]], err = strconv.ParseFloat(line[len(line)-1], 64); err != nil {
			return nil, fmt.Errorf("published_allocation.csv: %w", err)
		}
	}
	return out, nil
}
