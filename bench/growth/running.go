package growth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

const (
	runningHeld = 5_000 // clusters that the watchdog keeps up with
	offersHosts = 10_000
	atOnce      = 16 // requests of people
	reportsAway = 64 // reports under way
	boot        = "3f0c6a52-7c4e-4b58-9a7c-2d2f4f7f9c11"
)

// Running measures a fleet on which 5,000 clusters run: the reports of its hosts, the watchdog, and a list of clusters;
// and a search of the offers of 10,000 hosts.
func Running(ctx context.Context, base string) ([]table.Row, error) {
	meter, err := platform.NewMeter(ctx, base)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, base, size{hosts: runningHeld / platform.GPUsPerHost, runs: runningHeld})
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := platform.HoldForRunning(ctx, s.srv.DB, s.renters[0].Org); err != nil {
		return nil, fmt.Errorf("holds: %w", err)
	}
	out, err := s.reports(ctx, meter)
	if err != nil {
		return nil, fmt.Errorf("reports: %w", err)
	}
	list, err := s.pages(ctx, meter, "50 running clusters", "/clusters?limit=50", 1_000)
	if err != nil {
		return nil, err
	}
	watched, err := s.watch(ctx, meter)
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	out = append(append(out, list), watched...)
	market, err := open(ctx, base, size{hosts: offersHosts})
	if err != nil {
		return nil, err
	}
	defer market.close()
	for _, c := range []struct {
		name, path string
		want       float64
	}{
		{"offers of 10,000 hosts, first page", "/offers", 1_500},
		{"offers of 10,000 hosts, with a query", "/offers?q=" + url.QueryEscape("gpu_model=H100 vram_gb>=70"), 500},
	} {
		r, err := market.pages(ctx, meter, c.name, c.path, c.want)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// rented is a host with leases and what it reports.
type rented struct {
	host   id.Host
	report agentapi.Sync
}

// rentedHosts returns the hosts, which report as if their leases had always been well.
func (s *side) rentedHosts(ctx context.Context) ([]rented, error) {
	rows, err := s.srv.DB.Pool.Query(ctx, "SELECT l.host_id, l.id, h.revision, c.epoch FROM lease l JOIN host h "+
		"ON h.id = l.host_id CROSS JOIN control c WHERE l.ended_at IS NULL ORDER BY l.host_id, l.id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []rented
	for rows.Next() {
		var h id.Host
		var l id.Lease
		r := agentapi.Sync{Protocol: agentapi.Protocol, AgentVersion: "bench", BootID: boot, Full: true}
		if err := rows.Scan(&h, &l, &r.Revision, &r.ControlEpoch); err != nil {
			return nil, err
		}
		if len(out) == 0 || out[len(out)-1].host != h {
			out = append(out, rented{h, r})
		}
		last := &out[len(out)-1].report
		last.Leases = append(last.Leases, agentapi.LeaseStatus{LeaseRef: agentapi.LeaseRef{Lease: l.String(), Epoch: 1},
			State: agentapi.NodeReady, AtBarrier: true, Started: true, Good: true})
	}
	return out, rows.Err()
}

// wellNow lets all nodes be well as of now, and sets something else of them.
func (s *side) wellNow(ctx context.Context, set string) error {
	_, err := s.srv.DB.Pool.Exec(ctx, "UPDATE node_status SET reported_at = clock_timestamp(), last_good_ms = "+
		"extract(epoch FROM clock_timestamp()) * 1000, "+set)
	return err
}

// keepWell lets all nodes report every 14 s, a part of them every second, until ctx ends.
func (s *side) keepWell(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		_, _ = s.srv.DB.Pool.Exec(ctx, "UPDATE node_status SET reported_at = clock_timestamp(), last_good_ms = "+
			"extract(epoch FROM clock_timestamp()) * 1000 WHERE abs(hashtext(node_id::text)) % 14 = $1", n%14)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// reports measures quiet reports of rented hosts, stored together and each by itself.
func (s *side) reports(ctx context.Context, meter *platform.Meter) ([]table.Row, error) {
	hosts, err := s.rentedHosts(ctx)
	if err != nil {
		return nil, err
	}
	// The hosts' boot is known, so that no time before their first report here counts as a gap.
	if err := s.wellNow(ctx, "boot_id = '"+boot+"'"); err != nil {
		return nil, err
	}
	c := cluster.New(s.srv.DB, nil, nil, cluster.Config{Currency: platform.Currency})
	quiet, began := cluster.NewQuietReports(c.Hosts), time.Now()
	var news atomic.Int64
	next := func(i int) (id.Host, agentapi.Sync) {
		h := hosts[i%len(hosts)]
		h.report.BootMS = 1_000_000_000 + time.Since(began).Milliseconds()
		return h.host, h.report
	}
	alone := func(ctx context.Context, _, i int) error {
		h, r := next(i)
		return storeAlone(ctx, s.srv.DB, c.Hosts, h, r)
	}
	together := func(ctx context.Context, _, i int) error {
		h, r := next(i)
		if _, ok := quiet.Take(ctx, h, r, 0); ok {
			return nil
		}
		news.Add(1) // most often a time anchor that a quicker report improves
		return storeAlone(ctx, s.srv.DB, c.Hosts, h, r)
	}
	var runs [2][]platform.Run
	for n := range 6 {
		for k, do := range []func(context.Context, int, int) error{alone, together} {
			before := meter.Read()
			each, all, err := platform.Load(ctx, reportsAway, 2*len(hosts), do)
			if err != nil {
				return nil, err
			}
			if n > 0 { // the first stores what the hosts report at all
				runs[k] = append(runs[k], platform.Summary(each, all, len(each), meter.Read().Sub(before)))
			}
		}
	}
	if all := int64(12 * len(hosts)); news.Load() > all/10 {
		return nil, fmt.Errorf("%d of %d reports were not quiet", news.Load(), all)
	}
	row := func(what, unit string, of func(platform.Run) float64) table.Row {
		var v [2][]float64
		for k := range runs {
			for _, r := range runs[k] {
				v[k] = append(v[k], of(r))
			}
		}
		a, b := table.Median(v[1]), table.Median(v[0])
		return table.Row{Goal: 7, Name: "quiet reports of 8 leases, " + what, Unit: unit, Ours: a, Baseline: b,
			BaselineName: "each stored alone", Ratio: a / b, Details: runs}
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return []table.Row{
		row("64 at a time", "/s", func(r platform.Run) float64 { return r.PerSecond }),
		row("CPU of the server", "ms", func(r platform.Run) float64 { return ms(r.OwnCPU) }),
		row("CPU of PostgreSQL", "ms", func(r platform.Run) float64 { return ms(r.PostgresCPU) }),
	}, nil
}

// storeAlone does what the host link does with a report that is not quiet.
func storeAlone(ctx context.Context, d *db.DB, hosts *cluster.Hosts, h id.Host, r agentapi.Sync) error {
	agents := host.NewAgents(d, nil)
	if _, err := metering.NewCollector(d).IssueAnchor(ctx, h, r.BootID, r.BootMS); err != nil {
		return err
	}
	stored, err := agents.RecordReport(ctx, h, r)
	if err != nil {
		return err
	}
	if err := hosts.ApplyReport(ctx, h, r, stored.Gone); err != nil {
		return err
	}
	if _, err := hosts.HostState(ctx, h, r); err != nil {
		return err
	}
	_, err = agents.UpdateOrder(ctx, h, r)
	return err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// pages measures a page that many people ask for at once.
func (s *side) pages(ctx context.Context, meter *platform.Meter, name, path string, want float64) (table.Row, error) {
	get := func(ctx context.Context, _, _ int) error { return s.call(ctx, "GET", path, "", "", http.StatusOK) }
	var perSecond, p99, cpu []float64
	for n := range 6 {
		before := meter.Read()
		each, all, err := platform.Load(ctx, atOnce, 400, get)
		if err != nil {
			return table.Row{}, fmt.Errorf("%s: %w", name, err)
		}
		if r := platform.Summary(each, all, len(each), meter.Read().Sub(before)); n > 0 {
			perSecond, p99 = append(perSecond, r.PerSecond), append(p99, ms(r.P99))
			cpu = append(cpu, ms(r.OwnCPU+r.PostgresCPU))
		}
	}
	got := table.Median(perSecond)
	name = fmt.Sprintf("%s, %d at once, p99 %.0f ms, %.2f ms of CPU each", name, atOnce, table.Median(p99),
		table.Median(cpu))
	return table.Row{Goal: 17, Name: name, Unit: "/s",
		Ours: got, Baseline: want, BaselineName: "wanted", Ratio: got / want, Want: fmt.Sprintf("≥ %.0f /s", want),
		Met: got >= want, Details: map[string][]float64{"per_second": perSecond, "p99_ms": p99, "cpu_ms": cpu}}, nil
}

// watched is how long the watchdog is watched, and how long the same reports come without it.
const (
	watched   = time.Minute
	unwatched = 30 * time.Second
)

// watch lets the watchdog run as the worker does, while all hosts report every 14 s. Its CPU is what the same reports
// cost less without it.
func (s *side) watch(ctx context.Context, meter *platform.Meter) ([]table.Row, error) {
	c := cluster.New(s.srv.DB, nil, nil, cluster.Config{Currency: platform.Currency})
	if err := s.wellNow(ctx, "good = true"); err != nil {
		return nil, err
	}
	if _, err := s.srv.DB.Pool.Exec(ctx, "UPDATE cluster SET due_at = clock_timestamp() + random() * "+
		"interval '30 seconds', full_look_at = clock_timestamp() + random() * interval '5 minutes'"); err != nil {
		return nil, err
	}
	var late float64
	var looked, calm int
	part := func(during time.Duration, pass func() error) (float64, error) {
		before, began := meter.Read(), time.Now()
		for time.Since(began) < during {
			if err := pass(); err != nil {
				return 0, err
			}
			time.Sleep(time.Second)
		}
		used := meter.Read().Sub(before)
		return 100 * float64(used.Own+used.Postgres) / float64(time.Since(began)), nil
	}
	reporting, stop := context.WithCancel(ctx)
	var hosts errgroup.Group
	defer func() { stop(); _ = hosts.Wait() }()
	hosts.Go(func() error { s.keepWell(reporting); return nil })
	on, err := part(watched, func() error {
		var now float64
		err := s.srv.DB.Pool.QueryRow(ctx, "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - due_at)), "+
			"0)::float8 FROM cluster WHERE due_at < clock_timestamp()").Scan(&now)
		if err != nil {
			return err
		}
		late = max(late, now)
		r, err := c.Watchdog.Pass(ctx)
		if looked, calm = looked+r.Looked, calm+r.Calm; err == nil && r.Failed > 0 {
			err = fmt.Errorf("%d clusters could not be tended", r.Failed)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	off, err := part(unwatched, func() error { return nil })
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("watchdog, 5,000 running (%d calm and %d full looks in %s)", calm, looked, watched)
	return []table.Row{
		{Goal: 17, Name: name + ": the latest look", Unit: "s", Ours: late, Baseline: 1, BaselineName: "pause between passes",
			Ratio: late, Want: "≤ 5 s", Met: late <= 5},
		{Goal: 17, Name: "the same, server and PostgreSQL, of a core", Unit: "%", Ours: on - off, Baseline: off,
			BaselineName: "the reports alone", Ratio: (on - off) / off, Want: "≤ 25 %", Met: on-off <= 25},
	}, nil
}
