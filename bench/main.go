// Command bench runs the benchmarks and prints one table: ours next to its baseline, with the goal. `make bench` runs
// it with the services it needs. The table is also written as JSON to bench/out/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/musterhq/muster/bench/fleet"
	"github.com/musterhq/muster/bench/growth"
	"github.com/musterhq/muster/bench/ingest"
	"github.com/musterhq/muster/bench/network"
	"github.com/musterhq/muster/bench/placement"
	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/rent"
	"github.com/musterhq/muster/bench/restore"
	"github.com/musterhq/muster/bench/start"
	"github.com/musterhq/muster/bench/table"
)

// benchmark measures one goal.
type benchmark struct {
	goal  int
	what  string
	needs string // an environment variable without which it cannot run
	run   func(ctx context.Context) ([]table.Row, error)
}

// benchmarks are all there are, by goal.
func benchmarks(seeds int) []benchmark {
	data := placement.DataDir()
	return []benchmark{
		{1, "renting over HTTP", envPostgres, withPostgres(rent.Rows)},
		{2, "placement quality on the openb fleet", envOpenb,
			func(ctx context.Context) ([]table.Row, error) { return placement.Quality(ctx, data, seeds) }},
		{3, "placement cost as the fleet grows", envOpenb,
			func(ctx context.Context) ([]table.Row, error) { return placement.Cost(ctx, data) }},
		{4, "gangs inside fabrics", "", placement.Gangs},
		{5, "taking in usage segments", envPostgres, withPostgres(ingest.Rows)},
		{6, "what metering stores", envPostgres, withPostgres(ingest.StorageRows)},
		{9, "from the request to running", envBin, func(ctx context.Context) ([]table.Row,
			error) {
			return start.Rows(ctx, os.Getenv(envBin))
		}},
		{11, "a fleet that arrives, reports and comes back", envPostgres, withPostgres(fleet.Rows)},
		{12, "the network between hosts", envBin, func(ctx context.Context) ([]table.Row,
			error) {
			return network.Rows(ctx, os.Getenv(envBin))
		}},
		{13, "writing to a volume", "", restore.WriteRows},
		{14, "restoring a volume, and reading one on demand", envBin, func(ctx context.Context) ([]table.Row,
			error) {
			return restore.ReadRows(ctx, os.Getenv(envBin))
		}},
		{15, "ranks that restore one volume", "", restore.Rows},
		{17, "what the past costs", envPostgres, withPostgres(growth.Rows)},
		{7, "5,000 clusters that run", envPostgres, withPostgres(growth.Running)},
		{12, "a host that is lost", envPostgres, func(ctx context.Context) ([]table.Row,
			error) {
			return network.LossRows(ctx, os.Getenv(envBin))
		}},
	}
}

const (
	// envPostgres names the PostgreSQL server to measure on: a role that may create databases. `make bench` starts one.
	envPostgres = "MUSTER_TEST_POSTGRES"
	// envBin names the folder of the built programs; the benchmark needs root and Docker, too.
	envBin = "MUSTER_BIN"
	// envOpenb names the folder of the openb data set.
	envOpenb = "MUSTER_OPENB_DIR"
)

func withPostgres(run func(ctx context.Context, base string) ([]table.Row,
	error)) func(context.Context) ([]table.Row, error) {
	return func(ctx context.Context) ([]table.Row, error) { return run(ctx, os.Getenv(envPostgres)) }
}

// chosen are the benchmarks to run: the named goals, or all that can run with what the environment names. A goal that
// is named and cannot run is an error.
func chosen(all []benchmark, goals []int) (out []benchmark, err error) {
	for _, b := range all {
		able := b.needs == "" || os.Getenv(b.needs) != ""
		switch named := slices.Contains(goals, b.goal); {
		case !named && len(goals) > 0:
		case able:
			out = append(out, b)
		case named:
			return nil, fmt.Errorf("goal %d, %s, needs %s to be set", b.goal, b.what, b.needs)
		default:
			fmt.Fprintf(os.Stderr, "goal %d: %s: not measured, %s is not set\n", b.goal, b.what, b.needs)
		}
	}
	for _, g := range goals {
		if !slices.ContainsFunc(all, func(b benchmark) bool { return b.goal == g }) {
			return nil, fmt.Errorf("there is no benchmark of goal %d", g)
		}
	}
	return out, nil
}

func main() {
	for _, process := range []func([]string) (int, bool){network.Process, fleet.Process} {
		if code, ok := process(os.Args[1:]); ok {
			os.Exit(code)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("goals", "", "measure these goals alone, as in 2,4")
	seeds := flags.Int("seeds", 5, "orders of arrival for placement quality")
	out := flags.String("out", filepath.Join("bench", "out"), "folder for the JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	goals, err := numbers(*only)
	if err != nil {
		return err
	}
	run, err := chosen(benchmarks(*seeds), goals)
	if err != nil {
		return err
	}
	report := table.NewReport()
	if base := os.Getenv(envPostgres); base != "" {
		if report.Database, err = platform.Describe(ctx, base); err != nil {
			return err
		}
	}
	var failed []error
	for _, b := range run {
		fmt.Fprintf(os.Stderr, "goal %d: %s …\n", b.goal, b.what)
		rows, err := b.run(ctx)
		if err != nil { // the others are still worth knowing
			failed = append(failed, fmt.Errorf("goal %d: %w", b.goal, err))
			continue
		}
		report.Rows = append(report.Rows, rows...)
	}
	report.End()
	return errors.Join(append(failed, report.Print(os.Stdout), report.Save(*out))...)
}

func numbers(list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var out []int
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("-goals: %q is not a number", s)
		}
		out = append(out, n)
	}
	return out, nil
}
