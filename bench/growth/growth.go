// Package growth measures that everyday calls do not cost more as history grows: the same calls on a database with a
// past and on one without, in turns.
package growth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/money"
)

// How much past there is.
const (
	pastClusters = 300_000 // of one organisation, in a year
	monthLeases  = 10_000  // of one operator, in a month, 40 postings each
	runningMany  = 10_000
	runningFew   = 100
)

const (
	rounds = 15
	page   = 50 // past clusters of the organisation without a past: a list shows as many on both sides
)

// size is what a database is filled with.
type size struct {
	hosts    int
	clusters int // that are past
	leases   int // of a month
	runs     int // clusters that run
}

const fewHosts = 200

// side is a server on a database.
type side struct {
	srv     *platform.Server
	renters []platform.Renter
	n       int
	close   func()
}

// Rows measures all three cases.
func Rows(ctx context.Context, base string) ([]table.Row, error) {
	old, err := open(ctx, base, size{hosts: fewHosts, clusters: pastClusters, leases: monthLeases})
	if err != nil {
		return nil, fmt.Errorf("a database with a past: %w", err)
	}
	defer old.close()
	empty, err := open(ctx, base, size{hosts: fewHosts, clusters: page})
	if err != nil {
		return nil, fmt.Errorf("a database without: %w", err)
	}
	defer empty.close()
	var out []table.Row
	for _, c := range []struct {
		name string
		do   func(context.Context, *side) error
	}{
		{"list, 300,000 past clusters", get("/clusters?limit=50")},
		{"rent, 300,000 past clusters", rent},
		{"statement of today, 300,000 past clusters", get("/billing/statement?from=" +
			time.Now().UTC().Format(time.DateOnly))},
		{"balance, 300,000 past clusters", get("/billing/balance")},
		{"transactions, 300,000 past clusters", get("/billing/transactions?limit=50")},
		{"maturing, a month of 10,000 leases", mature},
		{"earned and payable, a month of 10,000 leases", standing},
		{"operator's statement of today, a month of 10,000 leases", earnings},
	} {
		var ours, bare []float64
		for i := range rounds + 2 {
			a, err := timed(ctx, old, c.do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			b, err := timed(ctx, empty, c.do)
			if err != nil {
				return nil, fmt.Errorf("%s, empty: %w", c.name, err)
			}
			if i >= 2 { // the first plan statements
				ours, bare = append(ours, a), append(bare, b)
			}
		}
		out = append(out, row(c.name, "ms", ours, bare, "without a past"))
	}
	sweep, err := sweeps(ctx, base)
	return append(out, sweep), err
}

func row(name, unit string, ours, bare []float64, beside string) table.Row {
	a, b := table.Median(ours), table.Median(bare)
	return table.Row{
		Goal:         17,
		Name:         name,
		Unit:         unit,
		Ours:         a,
		Baseline:     b,
		BaselineName: beside,
		Ratio:        a / b,
		Want:         "≤ 2",
		Met:          a <= 2*b,
		Details:      map[string][]float64{"ours": ours, "baseline": bare},
	}
}

func timed(ctx context.Context, s *side, do func(context.Context, *side) error) (float64, error) {
	t := time.Now()
	err := do(ctx, s)
	return float64(time.Since(t)) / float64(time.Millisecond), err
}

// open fills a database. The first renter has the past, and operates hosts that the second rents.
func open(ctx context.Context, base string, z size) (*side, error) {
	s := &side{}
	t, err := platform.NewTemplate(ctx, base, func(ctx context.Context, d *db.DB, _ string) (err error) {
		if _, err := platform.AddFleet(ctx, d, platform.Fleet{Hosts: z.hosts, Operators: 5}); err != nil {
			return err
		}
		if s.renters, err = platform.AddRenters(ctx, d, 2, 9_000_000*money.Unit); err != nil {
			return err
		}
		me, other := s.renters[0].Org, s.renters[1].Org
		err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind: "usage",
				Key:  "usage:first",
				Transfers: []ledger.Transfer{
					{
						Debit:  ledger.Wallet(other, platform.Currency),
						Credit: ledger.HostPending(me, platform.Currency),
						Amount: money.Unit,
					}},
			})
			return err
		})
		if err != nil {
			return err
		}
		todo := []string{"SET statement_timeout = 0", platform.ID7}
		if z.clusters > 0 {
			with := strings.NewReplacer("$1", "'"+me.UUID().String()+"'", "$2", fmt.Sprint(z.clusters))
			todo = append(todo, with.Replace(past))
			todo = append(append(todo, pastRows...), "DROP TABLE past")
		}
		if z.leases > 0 {
			for _, q := range earned {
				todo = append(todo, strings.NewReplacer("%[1]s", me.UUID().String(), "%[2]s", other.UUID().String(),
					"%[3]d", fmt.Sprint(z.leases)).Replace(q))
			}
		}
		if z.runs > 0 {
			todo = append(todo, platform.Running(me, z.runs)...)
		}
		todo = append(todo, linked)
		c, err := d.Pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
		for _, q := range todo {
			if _, err := c.Exec(ctx, q); err != nil {
				return fmt.Errorf("%.80s: %w", q, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	at, drop, err := t.Clone(ctx)
	t.Drop(ctx)
	if err != nil {
		return nil, err
	}
	if s.srv, err = platform.Serve(ctx, at, 8); err != nil {
		drop()
		return nil, err
	}
	s.close = func() { s.srv.Stop(); drop() }
	return s, nil
}

// people is the client of all requests. It keeps as many connections as there are callers.
var people = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func (s *side) call(ctx context.Context, method, path, key, body string, want int) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.srv.Addr+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.renters[0].Token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := people.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		b, err := io.ReadAll(resp.Body)
		return errors.Join(fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, b), err)
	}
	_, err = io.Copy(io.Discard, resp.Body) // to keep the answer is not what is measured
	return err
}

func get(path string) func(context.Context, *side) error {
	return func(ctx context.Context, s *side) error { return s.call(ctx, "GET", path, "", "", http.StatusOK) }
}

func rent(ctx context.Context, s *side) error {
	s.n++
	name := fmt.Sprintf("now-%d", s.n)
	return s.call(ctx, "POST", "/clusters", name,
		fmt.Sprintf(`{"name":%q,"nodes":1,"gpus_per_node":1,"gpu":"gpu_model=H100 vram_gb>=80",`+
			`"image":"registry.example/train:1","command":["python","train.py"],"disk_gb":100,"max_duration":7200}`, name),
		http.StatusAccepted)
}

func mature(ctx context.Context, s *side) error {
	_, err := payout.Mature(ctx, s.srv.DB, payout.DefaultHoldback)
	return err
}

func standing(ctx context.Context, s *side) error {
	_, err := payout.Of(ctx, s.srv.DB.Q, s.renters[0].Org, platform.Currency, payout.DefaultHoldback)
	return err
}

func earnings(ctx context.Context, s *side) error {
	today := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly) // tomorrow: nothing is in it on either side
	_, err := statement.New(s.srv.DB, "EUR", statement.Party{}).OperatorStatement(ctx, statement.OperatorRequest{
		Org:      s.renters[0].Org,
		Currency: platform.Currency,
		Holdback: payout.DefaultHoldback,
		From:     today,
		To:       today,
	})
	return err
}

// sweeps is what a pass of the watchdog costs per cluster when many run, and when few do.
func sweeps(ctx context.Context, base string) (table.Row, error) {
	var each [2][]float64
	for i, n := range []int{runningMany, runningFew} {
		s, err := open(ctx, base, size{hosts: fewHosts, runs: n})
		if err != nil {
			return table.Row{}, err
		}
		defer s.close()
		c := cluster.New(s.srv.DB, nil, nil, cluster.Config{Currency: platform.Currency})
		for round := range rounds/3 + 1 {
			for _, q := range []string{"UPDATE node_status SET reported_at = clock_timestamp(), last_good_ms = extract(epoch " +
				"FROM clock_timestamp()) * 1000",
				"UPDATE cluster SET due_at = clock_timestamp()"} {
				if _, err := s.srv.DB.Pool.Exec(ctx, q); err != nil {
					return table.Row{}, err
				}
			}
			t := time.Now()
			r, err := c.Watchdog.Pass(ctx)
			if err != nil || r.Calm != n {
				return table.Row{}, fmt.Errorf("%d clusters: %+v, %w", n, r, err)
			}
			if round > 0 {
				each[i] = append(each[i], float64(time.Since(t))/float64(time.Microsecond)/float64(n))
			}
		}
	}
	return row("a watchdog's pass per cluster, 10,000 running", "µs", each[0], each[1], "100 running"), nil
}
