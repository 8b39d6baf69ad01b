package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

const (
	// clustersPerHost is how many clusters run for each host, in hundredths.
	clustersPerHost = 50
	// ranFor is how long hosts report their leases before the server is killed.
	ranFor = 30 * time.Second
	// watchedFor is how long the clusters are watched after that. Silence counts again 120 s after the server is back,
	// plus a second for every 500 hosts, and a node is lost after 35 s of it.
	watchedFor = 180 * time.Second
	// leasedReport is how often a host with leases reports.
	leasedReport = 14 * time.Second
	// watchdogPause is the pause between passes of the watchdog, as in the worker.
	watchdogPause = time.Second
	// readyEvery is how often it is checked whether the server is ready.
	readyEvery = 100 * time.Millisecond
)

// survived is what became of running clusters whose server was killed.
type survived struct {
	Clusters int     `json:"clusters"`
	Lost     int     `json:"lost"`       // that do not run any more, or lost a node
	Gaps     int     `json:"gaps"`       // whose time is not confirmed without interruption
	ReadyS   float64 `json:"ready_s"`    // from SIGKILL until the new server was ready
	SlowestS float64 `json:"slowest_s"`  // the slowest answer that it is ready, after that
	AllBackS float64 `json:"all_back_s"` // from SIGKILL until all hosts had reported
}

// survive lets clusters run on the hosts, kills the server, starts it again and watches the clusters.
func (s *system) survive(ctx context.Context, members []member) (out survived, err error) {
	d, err := db.Open(ctx, db.Config{URL: s.start.Database, MaxConns: 4})
	if err != nil {
		return out, err
	}
	defer d.Close()
	out.Clusters = max(len(members)*clustersPerHost/100, 1)
	s.server.kill()
	leased, err := addClusters(ctx, d, members, out.Clusters)
	if err != nil {
		return out, fmt.Errorf("clusters: %w", err)
	}
	s.start.Watchdog = true
	if _, err := s.up(ctx); err != nil {
		return out, err
	}
	if _, err := each[None](s.fleet, "Lease", leased); err != nil {
		return out, err
	}
	if _, err := each[None](s.fleet, "Arrive", None{}); err != nil {
		return out, err
	}
	if _, err := each[None](s.fleet, "Run", ranFor); err != nil {
		return out, err
	}
	if n, _, err := lost(ctx, d); err != nil || n > 0 {
		return out, errors.Join(err, fmt.Errorf("%d clusters ended before the server was killed", n))
	}
	s.server.kill()
	began := time.Now()
	if _, err := s.up(ctx); err != nil {
		return out, err
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	var slowest atomic.Int64
	var unready error
	watch.Go(func() { slowest.Store(int64(s.watchReady(watching, &unready))) })
	defer watch.Wait()
	defer stop()
	if _, err := call[None](s.server, "Ready", None{}); err != nil {
		return out, err
	}
	out.ReadyS = time.Since(began).Seconds()
	err = s.profiled("return-running", func() error {
		_, err := each[None](s.fleet, "Arrive", None{})
		return err
	})
	if err != nil {
		return out, err
	}
	out.AllBackS = time.Since(began).Seconds()
	if _, err := each[None](s.fleet, "Run", watchedFor); err != nil {
		return out, err
	}
	stop()
	watch.Wait()
	out.SlowestS = time.Duration(slowest.Load()).Seconds()
	if out.Lost, out.Gaps, err = lost(ctx, d); err == nil {
		err = unready
	}
	return out, err
}

// watchReady checks again and again whether the server is ready, until ctx ends. It returns how long the slowest answer
// took.
func (s *system) watchReady(ctx context.Context, failed *error) (slowest time.Duration) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			began := time.Now()
			if _, err := call[None](s.server, "Ready", None{}); err != nil {
				*failed = err
			}
			slowest = max(slowest, time.Since(began))
		case <-ctx.Done():
			return slowest
		}
	}
}

// lost returns how many clusters do not run as they did, and how many have more than one window of confirmed time.
func lost(ctx context.Context, d *db.DB) (clusters, gaps int, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE c.state <> 'running' OR n.state <> 'ready' OR
		l.ended_at IS NOT NULL OR s.trouble <> ''),
		count(*) FILTER (WHERE (SELECT count(*) FROM cluster_window w WHERE w.cluster_id = c.id) <> 1)
		FROM cluster c JOIN node n ON n.cluster_id = c.id JOIN lease l ON l.node_id = n.id JOIN node_status s ON
		s.node_id = n.id WHERE c.name LIKE 'run-%'`).Scan(&clusters, &gaps)
	return clusters, gaps, err
}

// Leases are what the hosts' leases are, by host.
type Leases map[id.Host]Held

// Held is the leases of one host.
type Held struct {
	Leases   []string
	Revision int64
}

// addClusters adds clusters that run on the hosts, and returns their leases.
func addClusters(ctx context.Context, d *db.DB, members []member, n int) (Leases, error) {
	renters, err := platform.AddRenters(ctx, d, 1, 1)
	if err != nil {
		return nil, err
	}
	for _, q := range append([]string{platform.ID7}, platform.Running(renters[0].Org, n)...) {
		if _, err := d.Pool.Exec(ctx, q); err != nil {
			return nil, fmt.Errorf("%.60s: %w", q, err)
		}
	}
	if err := platform.HoldForRunning(ctx, d, renters[0].Org); err != nil {
		return nil, err
	}
	hosts, boots := make([]string, len(members)), make([]string, len(members))
	for i, m := range members {
		hosts[i], boots[i] = m.Host.ID.UUID().String(), bootOf(m)
	}
	// The hosts' boots are known, so that no time before their first report counts as a gap.
	if _, err := d.Pool.Exec(ctx, `UPDATE node_status s SET boot_id = u.boot FROM node n,
		(SELECT unnest($1::uuid[]) AS host, unnest($2::text[]) AS boot) u WHERE n.id = s.node_id AND n.host_id = u.host`,
		hosts, boots); err != nil {
		return nil, err
	}
	rows, err := d.Pool.Query(ctx, "SELECT l.host_id, l.id, h.revision FROM lease l JOIN host h ON h.id = l.host_id "+
		"WHERE l.ended_at IS NULL")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := Leases{}
	for rows.Next() {
		var h id.Host
		var l id.Lease
		var revision int64
		if err := rows.Scan(&h, &l, &revision); err != nil {
			return nil, err
		}
		out[h] = Held{append(out[h].Leases, l.String()), revision}
	}
	return out, rows.Err()
}

// lease gives hosts their leases: from now on they report that those run and are well.
func (c *crowd) lease(all Leases) {
	for _, h := range c.hosts {
		if l, ok := all[h.id]; ok {
			h.revision = l.Revision
			for _, lease := range l.Leases {
				h.leases = append(h.leases, agentapi.LeaseStatus{LeaseRef: agentapi.LeaseRef{Lease: lease, Epoch: 1},
					State: agentapi.NodeReady, AtBarrier: true, Started: true, Good: true})
			}
		}
	}
}

// run lets all hosts report for some time: each as often as an agent with, or without, leases.
func (c *crowd) run(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var all sync.WaitGroup
	var failed atomic.Int64
	for i, h := range c.hosts {
		every := idleReport
		if len(h.leases) > 0 {
			every = leasedReport
		}
		all.Go(func() {
			next := time.NewTimer(every * time.Duration(i) / time.Duration(len(c.hosts)))
			defer next.Stop()
			for {
				select {
				case <-next.C:
					next.Reset(every)
				case <-ctx.Done():
					return
				}
				if !c.persist(ctx, func() error { return h.report(ctx) }) && ctx.Err() == nil {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d reports were not accepted", n)
	}
	return nil
}
