package cluster_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// calmReport returns the next report of a host on which all is still well.
func (w *world) calmReport(h *fakeHost) agentapi.Sync {
	w.t.Helper()
	w.must(h.sync(w.ctx, 0)) // the usual way stores everything that is new
	s := h.report()
	s.ControlEpoch, s.Segments = 1, nil
	return s
}

// stored returns what is stored of the hosts' nodes and their traffic.
func (w *world) stored() (out []map[string]any) {
	w.t.Helper()
	var raw []byte
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT jsonb_agg(to_jsonb(s) || jsonb_build_object('traffic', (SELECT
		jsonb_agg(to_jsonb(t) - 'first_at' - 'last_at' ORDER BY t.lease_id, t.epoch) FROM lease_traffic t)) ORDER BY node_id)
		FROM node_status s`).Scan(&raw))
	w.must(json.Unmarshal(raw, &out))
	return out
}

// A quiet report of a host with leases stores and answers what the usual way stores and answers.
func TestQuietReports_LeasedAsTheUsualWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	w.runUp(spec(2, 1))
	h := w.hosts[0]
	s := w.calmReport(h)
	s.Leases[0].Traffic = &agentapi.Traffic{Opened: 3, Up: 5, RanksSent: 7}
	// The host's clock is behind, so the report's moment does not depend on when it is read.
	w.exec("INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) SELECT DISTINCT ON (host_id) " +
		"host_id, boot_id, number + 1, boot_ms, server_ms - 5000 FROM time_anchor ORDER BY host_id, number DESC")
	w.exec("UPDATE node_status SET reported_at = reported_at - interval '20 seconds', " +
		"last_good_ms = last_good_ms - 20000")
	w.exec("CREATE TABLE before AS SELECT * FROM node_status")
	before := w.stored()
	w.exec("UPDATE host_status SET last_sync_at = 'epoch', full_report_at = 'epoch'")

	a, quiet := cluster.NewQuietReports(w.clusters[0].Hosts).Take(w.ctx, h.id, s, 0)
	if !quiet {
		t.Fatal("not quiet although nothing is new")
	}
	together := w.stored()
	var heard int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM host_status "+
		"WHERE last_sync_at > 'epoch' AND full_report_at > 'epoch'").Scan(&heard))
	if heard != 1 {
		t.Errorf("%d hosts were heard, want 1, before the answer", heard)
	}
	state, err := w.clusters[0].Hosts.HostState(w.ctx, h.id, s)
	w.must(err)
	if diff := cmp.Diff(state.Extensions, a.Extensions); diff != "" || len(a.Extensions) != 1 {
		t.Errorf("extensions (-usual +quiet):\n%s", diff)
	}
	if a.Revision != state.Revision || a.ControlEpoch != state.ControlEpoch {
		t.Errorf("revision %d of epoch %d, want %d of %d", a.Revision, a.ControlEpoch, state.Revision, state.ControlEpoch)
	}

	w.exec("UPDATE node_status s SET last_good_ms = b.last_good_ms, boot_ms = b.boot_ms, reported_at = b.reported_at " +
		"FROM before b WHERE b.node_id = s.node_id")
	w.exec("DELETE FROM lease_traffic")
	if diff := cmp.Diff(before, w.stored()); diff != "" {
		t.Fatalf("the state before is not restored:\n%s", diff)
	}
	w.must(h.send(w.ctx, 0, s))
	if diff := cmp.Diff(w.stored(), together); diff != "" {
		t.Errorf("stored (-usual +quiet):\n%s", diff)
	}
	if cmp.Equal(before, together) {
		t.Error("the report stored nothing")
	}
}

// Many hosts' quiet reports cost a few statements, however many leases they run.
func TestQuietReports_LeasedCostNoStatementEach(t *testing.T) {
	t.Parallel()
	const hosts, many = 8, 1 << 40
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, worldConfig{hosts: hosts, gpus: 1, db: d})
	for range hosts {
		w.runUp(spec(1, 1))
	}
	q := cluster.NewQuietReports(w.clusters[0].Hosts)
	statements := func(n int) int64 {
		t.Helper()
		reports := make([]agentapi.Sync, n)
		for i := range reports {
			reports[i] = w.calmReport(w.hosts[i])
		}
		q.Hold()
		k.Left.Store(many)
		var done sync.WaitGroup
		for i, s := range reports {
			done.Go(func() {
				if _, quiet := q.Take(t.Context(), w.hosts[i].id, s, 0); !quiet {
					t.Errorf("host %d is not quiet", i)
				}
			})
		}
		for q.Waiting() < n {
			<-time.After(time.Millisecond)
		}
		q.Resume(t.Context())
		done.Wait()
		return many - k.Left.Load()
	}
	one, all := statements(1), statements(hosts)
	if one != all || all > 8 {
		t.Errorf("%d statements for a host and %d for %d hosts", one, all, hosts)
	}
}

// What a host says of its leases beyond that they are well, and what changed in the database, ends the quiet.
func TestQuietReports_LeasedNewsIsNotQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	c := w.runUp(spec(2, 1))
	h := w.hosts[0]
	q := cluster.NewQuietReports(w.clusters[0].Hosts)
	take := func(s agentapi.Sync) bool {
		_, quiet := q.Take(w.ctx, h.id, s, 0)
		return quiet
	}
	zero := 0
	for name, change := range map[string]func(*agentapi.Sync, *agentapi.LeaseStatus){
		"nothing":         nil,
		"not well":        func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.Good = false },
		"not started":     func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.Started = false },
		"an exit":         func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.ExitCode = &zero },
		"gone":            func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.Gone = true },
		"a log":           func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.LogKept = true },
		"a silent rank":   func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.PeersDown = []int{1} },
		"an address":      func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.WGKey = "another" },
		"stopping":        func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.State = agentapi.NodeStopping },
		"progress":        func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.Progress.Step = "another" },
		"a cloud's word":  func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.Leaving = "AWS: stop" },
		"the owner's use": func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.OwnerMB = 100 },
		"an old epoch":    func(_ *agentapi.Sync, l *agentapi.LeaseStatus) { l.Epoch-- },
		"no lease":        func(s *agentapi.Sync, _ *agentapi.LeaseStatus) { s.Leases = nil },
		"a late report":   func(s *agentapi.Sync, _ *agentapi.LeaseStatus) { s.BootMS -= 1 << 19 },
		"another boot":    func(s *agentapi.Sync, _ *agentapi.LeaseStatus) { s.BootID = "another" },
		"a foreign lease": func(s *agentapi.Sync, l *agentapi.LeaseStatus) {
			other := *l
			other.Lease = id.New[id.Lease]().String()
			s.Leases = append(s.Leases, other)
		},
		"a lease twice": func(s *agentapi.Sync, l *agentapi.LeaseStatus) { s.Leases = append(s.Leases, *l) },
	} {
		s := w.calmReport(h)
		if change != nil {
			change(&s, &s.Leases[0])
		}
		if got, want := take(s), change == nil; got != want {
			t.Errorf("%s: quiet: %t", name, got)
		}
	}
	for _, change := range []string{
		"UPDATE host SET up_cap_gb = 1",
		"UPDATE host SET up_cap_gb = NULL; UPDATE node_status SET good = false",
		"UPDATE node_status SET reported_at = reported_at - interval '36 seconds'", // a silence is written down
		"UPDATE node_status SET last_good_ms = last_good_ms - 36000",               // and a gap
		"UPDATE node_status SET peers_down = '{1}', peers_from_ms = '{1}'",
		// A new one is due. The host may have more than one by now: its clock and the server's drift apart under load.
		"INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) SELECT DISTINCT ON (host_id, boot_id) " +
			"host_id, boot_id, number + 1, boot_ms - 600000, server_ms - 600000 FROM time_anchor " +
			"ORDER BY host_id, boot_id, number DESC",
	} {
		s := w.calmReport(h)
		if w.exec(change); take(s) {
			t.Errorf("quiet after %s", change)
		}
	}
	_, _, err := w.clusters[0].Rentals.ActOnce(w.ctx, w.renter, c.ID, cluster.ActionRelease, idem.Request{})
	w.must(err)
	if s := h.report(); take(s) {
		t.Error("quiet before its lease is gone")
	}
	w.rounds(c, "released", in(lifecycle.Released))
	w.exec("UPDATE node_status SET logs_kept = '{}'")
	w.rounds(c, "forgotten by its host", func(cluster.Cluster) bool { return len(h.runs) == 0 })
	if !take(w.calmReport(h)) {
		t.Error("not quiet after its lease is gone")
	}
}

// A node that another transaction is changing is left to the usual way: waiting for many nodes could end in a deadlock.
func TestQuietReports_LockedNodeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	w.runUp(spec(1, 1))
	q, s := cluster.NewQuietReports(w.clusters[0].Hosts), w.calmReport(w.hosts[0])
	tx, err := w.d.Pool.Begin(w.ctx)
	w.must(err)
	if _, err := tx.Exec(w.ctx, "SELECT FROM node_status FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	_, quiet := q.Take(w.ctx, w.hosts[0].id, s, 0)
	w.must(tx.Rollback(w.ctx))
	if quiet {
		t.Error("quiet although the node's status was not stored")
	}
	if _, quiet := q.Take(w.ctx, w.hosts[0].id, s, 0); !quiet {
		t.Error("not quiet once the node is free")
	}
}

// The report that a lease has started looks like the report that it still runs, and must not wait for others. So a
// report waits only if its host's last report was quiet and had the same leases.
func TestQuietReports_AStartDoesNotWait(t *testing.T) {
	t.Parallel()
	const within = 50 * time.Millisecond
	w := newWorld(t, worldConfig{hosts: 1, gpus: 2})
	w.runUp(spec(1, 1))
	h, q := w.hosts[0], cluster.NewQuietReports(w.clusters[0].Hosts)
	take := func(when string, s agentapi.Sync, wantQuiet, wantWait bool) {
		t.Helper()
		a, quiet := q.Take(w.ctx, h.id, s, within)
		if quiet != wantQuiet || a.Waited > 0 != wantWait {
			t.Errorf("%s: quiet: %t, waited %s", when, quiet, a.Waited)
		}
	}
	take("the first report", w.calmReport(h), true, false)
	take("the next one", w.calmReport(h), true, true)
	bad := w.calmReport(h)
	bad.Leases = slices.Clone(bad.Leases)
	bad.Leases[0].Good = false
	take("not well", bad, false, false)
	take("well again", w.calmReport(h), true, false)
	w.runUp(spec(1, 1))
	take("one more lease", w.calmReport(h), true, false)
	take("both leases", w.calmReport(h), true, true)
}
