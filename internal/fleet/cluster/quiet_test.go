package cluster_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// quietHost is an idle host that has reported in the usual way, and its next report.
type quietHost struct {
	*fleettest.Agent
	report agentapi.Sync
}

func quietHosts(t *testing.T, d *db.DB, n int) []quietHost {
	t.Helper()
	org, user := fleettest.Org(t, d)
	agents, anchors := host.NewAgents(d, nil), metering.NewCollector(d)
	out := make([]quietHost, n)
	for i := range out {
		a := fleettest.Enroll(t, d, org, user, 1)
		s := agentapi.Sync{
			Protocol: agentapi.Protocol, AgentVersion: "v1.2.3", BootID: "boot", BootMS: 1000, ControlEpoch: 1, Full: true,
			Capabilities: agentapi.Capabilities(), Update: &agentapi.UpdateStatus{State: agentapi.UpdateUnmanaged},
		}
		_, err := anchors.IssueAnchor(t.Context(), a.Host, s.BootID, s.BootMS)
		if err == nil {
			_, err = agents.RecordReport(t.Context(), a.Host, s)
		}
		if err == nil {
			_, err = agents.UpdateOrder(t.Context(), a.Host, s)
		}
		if err != nil {
			t.Fatal(err)
		}
		s.BootMS, s.Seq = 61_000, 2
		out[i] = quietHost{a, s}
	}
	return out
}

// A report that no reader takes is not quiet once its time is over, and none reads it later.
func TestQuietReports_DoNotOutlastTheirContext(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	h := quietHosts(t, d, 1)[0]
	q := cluster.NewQuietReports(cluster.New(d, nil, nil, cluster.Config{}).Hosts)
	q.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, quiet := q.Take(ctx, h.Host, h.report, 0); quiet || q.Waiting() != 0 {
		t.Errorf("quiet: %t, %d wait", quiet, q.Waiting())
	}
}

// A round of an idle fleet costs a few statements, however many hosts report.
func TestQuietReports_CostNoStatementEach(t *testing.T) {
	t.Parallel()
	const hosts, many = 30, 1 << 40
	d, k := dbtest.NewMortal(t)
	all := quietHosts(t, d, hosts)
	exec := func(sql string) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("UPDATE host_status SET last_sync_at = NULL")
	q := cluster.NewQuietReports(cluster.New(d, nil, nil, cluster.Config{}).Hosts)
	q.Hold()
	k.Left.Store(many)
	var done sync.WaitGroup
	for _, h := range all {
		done.Go(func() {
			a, quiet := q.Take(t.Context(), h.Host, h.report, 0)
			if !quiet || a.ControlEpoch != 1 || a.Anchor.Number != 1 || a.Anchor.BootID != "boot" {
				t.Errorf("quiet: %t, %+v", quiet, a)
			}
		})
	}
	for q.Waiting() < hosts {
		<-time.After(time.Millisecond)
	}
	q.Resume(t.Context())
	done.Wait()
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := many - k.Left.Load(); n > 6 {
		t.Errorf("%d statements for %d hosts", n, hosts)
	}
	var reported int
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(last_sync_at) FROM host_status").Scan(&reported); err != nil ||
		reported != hosts {
		t.Errorf("%d of %d hosts were reported: %v", reported, hosts, err)
	}
}

// Whatever must be stored or answered ends the quiet.
func TestQuietReports_NewsIsNotQuiet(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	h := quietHosts(t, d, 1)[0]
	q := cluster.NewQuietReports(cluster.New(d, nil, nil, cluster.Config{}).Hosts)
	exec := func(sql string) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	take := func(s agentapi.Sync) bool {
		_, quiet := q.Take(t.Context(), h.Host, s, 0)
		return quiet
	}
	if !take(h.report) {
		t.Fatal("an idle host is not quiet")
	}
	for name, change := range map[string]func(*agentapi.Sync){
		"not full": func(s *agentapi.Sync) { s.Full = false },
		"a lease":  func(s *agentapi.Sync) { s.Leases = []agentapi.LeaseStatus{{}} },
		"a foreign lease": func(s *agentapi.Sync) {
			s.Leases = []agentapi.LeaseStatus{{LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1},
				Started: true, Good: true, State: agentapi.NodeReady}}
		},
		"a segment":         func(s *agentapi.Sync) { s.Segments = []agentapi.Segment{{}} },
		"health":            func(s *agentapi.Sync) { s.Health = []agentapi.HealthEvent{{}} },
		"pulled":            func(s *agentapi.Sync) { s.Pulled = &agentapi.Pulled{Counter: "c"} },
		"engine":            func(s *agentapi.Sync) { s.EngineAway = &agentapi.EngineAway{} },
		"another boot":      func(s *agentapi.Sync) { s.BootID = "other" },
		"another version":   func(s *agentapi.Sync) { s.AgentVersion = "v1.2.4" },
		"an old protocol":   func(s *agentapi.Sync) { s.Protocol-- },
		"fewer features":    func(s *agentapi.Sync) { s.Capabilities = s.Capabilities[1:] },
		"an update":         func(s *agentapi.Sync) { s.Update = &agentapi.UpdateStatus{State: agentapi.UpdateDone} },
		"another revision":  func(s *agentapi.Sync) { s.Revision++ },
		"a new epoch":       func(s *agentapi.Sync) { s.ControlEpoch++ },
		"an earlier report": func(s *agentapi.Sync) { s.BootMS = 1 },
	} {
		s := h.report
		if change(&s); take(s) {
			t.Errorf("quiet in spite of %s", name)
		}
	}
	for boot, c := range map[string]struct {
		age   string
		quiet bool
	}{"recent": {"1700", true}, "old": {"1801", false}} {
		exec("INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) SELECT id, '" + boot +
			"', 1, 0, (extract(" +
			"epoch FROM clock_timestamp()) - " + c.age + ") * 1000 FROM host")
		s := h.report
		if s.BootID = boot; take(s) != c.quiet {
			t.Errorf("quiet: %t, with an anchor of %s s ago", !c.quiet, c.age)
		}
	}
	for _, change := range []struct{ do, undo string }{
		{"UPDATE host SET revision = revision + 1", "UPDATE host SET revision = revision - 1"},
		{"UPDATE host SET needs_full_report = true", "UPDATE host SET needs_full_report = false"},
		{"UPDATE host SET engine_away = 'away'", "UPDATE host SET engine_away = ''"},
		{"UPDATE host SET down_cap_gb = 1", "UPDATE host SET down_cap_gb = NULL"},
		{"UPDATE host SET state = 'enrolled'", "UPDATE host SET state = 'active'"},
		{"UPDATE host_status SET revision_seen = 7", "UPDATE host_status SET revision_seen = 0"},
		{"INSERT INTO agent_channel (name, version, source, percent, changed_by) SELECT 'stable', 'v9.0.0', 'https://x', " +
			"100, " +
			"id FROM app_user", "DELETE FROM agent_channel"},
		{"UPDATE control SET epoch = 2", ""},
	} {
		exec(change.do)
		if take(h.report) {
			t.Errorf("quiet after %s", change.do)
		}
		if change.undo == "" {
			continue
		}
		if exec(change.undo); !take(h.report) {
			t.Errorf("not quiet after %s", change.undo)
		}
	}
}

// Reports that come one after the other are read together if they may wait.
func TestQuietReports_WaitForOthers(t *testing.T) {
	t.Parallel()
	const few, many, within = 5, 1 << 40, time.Second
	d, k := dbtest.NewMortal(t)
	all := quietHosts(t, d, few+cluster.EnoughReports)
	q := cluster.NewQuietReports(cluster.New(d, nil, nil, cluster.Config{}).Hosts)
	take := func(hosts []quietHost) (statements int64, took time.Duration) {
		k.Left.Store(many)
		began := time.Now()
		var done sync.WaitGroup
		for i, h := range hosts {
			done.Go(func() {
				for q.Waiting() < i && time.Since(began) < within {
					<-time.After(time.Millisecond)
				}
				a, quiet := q.Take(t.Context(), h.Host, h.report, within)
				if !quiet || a.Waited < 0 || a.Waited > within {
					t.Errorf("quiet: %t, after waiting for %s", quiet, a.Waited)
				}
			})
		}
		done.Wait()
		return many - k.Left.Load(), time.Since(began)
	}
	if n, took := take(all[few:]); n > 4 || took >= within {
		t.Errorf("enough reports took %d statements and %s", n, took)
	}
	// The end of the first reports' wait is not the end of that of the next ones.
	if n, took := take(all[:few]); n > 4 || took < within {
		t.Errorf("a few reports took %d statements and %s", n, took)
	}
}
