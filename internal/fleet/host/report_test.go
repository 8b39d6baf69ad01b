package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// world is one host with one GPU that a lease holds.
type world struct {
	t     *testing.T
	d     *db.DB
	org   id.Org
	agent *fleettest.Agent
	lease id.Lease
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, d: dbtest.New(t)}
	org, user := fleettest.Org(t, w.d)
	w.org, w.agent = org, fleettest.Enroll(t, w.d, org, user, 1)
	_, w.lease = fleettest.Lease(t, w.d, w.agent.Host, org)
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		return fleettest.Claim(ctx, tx, host.ForLease, w.lease.UUID(), fleettest.GPUs(t, w.d, w.agent.Host), nil)
	})
	return w
}

func (w *world) tx(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	if err := w.d.InTx(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.d.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// end ends the lease, as metering and cluster do together.
func (w *world) end() {
	w.t.Helper()
	w.exec("UPDATE lease SET ended_at = clock_timestamp() WHERE id = $1", w.lease)
	w.tx(func(ctx context.Context, tx *db.Tx) error { return fleettest.RaiseRevision(ctx, tx, nil, w.agent.Host) })
}

func (w *world) sync(s agentapi.Sync) host.Report {
	w.t.Helper()
	return w.report(w.agent.Host, s)
}

// report records a report of a host.
func (w *world) report(h id.Host, s agentapi.Sync) host.Report {
	w.t.Helper()
	s.Protocol, s.BootID = agentapi.Protocol, "boot"
	r, err := host.NewAgents(w.d, nil).RecordReport(w.t.Context(), h, s)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) shows(gone bool) []agentapi.LeaseStatus {
	return []agentapi.LeaseStatus{{
		LeaseRef: agentapi.LeaseRef{Lease: w.lease.String(), Epoch: 1},
		State:    agentapi.NodeStopped,
		Gone:     gone,
	}}
}

func (w *world) host() host.Host {
	w.t.Helper()
	h, err := host.Read(w.t.Context(), w.d.Q, w.agent.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) claimed() bool {
	w.t.Helper()
	var yes bool
	if err := w.d.Pool.QueryRow(w.t.Context(),
		"SELECT EXISTS (SELECT FROM gpu_claim WHERE ended_at IS NULL)").Scan(&yes); err != nil {
		w.t.Fatal(err)
	}
	return yes
}

func TestAClaimEndsWhenAFullReportNoLongerShowsTheEndedLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, step := range []struct {
		what    string
		prepare func()
		sync    agentapi.Sync
		claimed bool
	}{
		{"the lease has not ended", nil, agentapi.Sync{Full: true, Revision: 0}, true},
		{"the report was made before the end was known", w.end, agentapi.Sync{Full: true, Revision: 0}, true},
		{"the report is not full", nil, agentapi.Sync{Revision: 1}, true},
		{"the host still shows it", nil, agentapi.Sync{Full: true, Revision: 1, Leases: w.shows(false)}, true},
		{"only its log is left", nil, agentapi.Sync{Full: true, Revision: 1, Leases: w.shows(true)}, false},
	} {
		if step.prepare != nil {
			step.prepare()
		}
		r := w.sync(step.sync)
		if w.claimed() != step.claimed || (len(r.Gone) == 1) == step.claimed {
			t.Fatalf("%s: claimed %t, gone %v", step.what, w.claimed(), r.Gone)
		}
	}
	var why string
	if err := w.d.Pool.QueryRow(t.Context(), "SELECT end_reason FROM gpu_claim").Scan(&why); err != nil ||
		why != host.EndReleased {
		t.Errorf("ended as %q, %v", why, err)
	}
}

func TestFirstFullReportMakesAHostActive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(agentapi.Sync{Revision: 0})
	if h := w.host(); h.State != host.Enrolled || h.Status.LastSyncAt == nil {
		t.Errorf("after a part: %+v", h)
	}
	w.sync(agentapi.Sync{Full: true, Revision: 0})
	w.sync(agentapi.Sync{Full: true, Revision: 0}) // twice does no harm
	h := w.host()
	if h.State != host.Active || h.Status.FullReportAt == nil {
		t.Errorf("after a full report: %+v", h)
	}
	if why := h.Unsellable(time.Now()); why != "the host is out of reach" {
		t.Errorf("not connected, yet %q", why)
	}
	w.exec("UPDATE host_status SET connected = true")
	if why := ptr(w.host()).Unsellable(time.Now()); why != "" {
		t.Errorf("unsellable: %s", why)
	}
	if why := ptr(w.host()).Unsellable(time.Now().Add(host.ReachableFor + time.Second)); why == "" {
		t.Error("silent for too long and still sellable")
	}
}

func ptr[T any](v T) *T { return &v }

func TestAbandonedClaimsBlockTheHostUntilItShowsThatItIsClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(agentapi.Sync{Full: true, Leases: w.shows(false)})
	abandon := func() int {
		t.Helper()
		n, err := host.AbandonClaims(t.Context(), w.d)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	silent := func() { w.exec("UPDATE host_status SET last_sync_at = clock_timestamp() - interval '11 minutes'") }
	silent()
	if n := abandon(); n != 0 || !w.claimed() {
		t.Fatalf("a lease that has not ended lost its claim (%d)", n)
	}
	w.end()
	w.exec("UPDATE host_status SET last_sync_at = clock_timestamp() - interval '9 minutes'")
	if n := abandon(); n != 0 {
		t.Fatal("abandoned too early")
	}
	silent()
	// A server that has just started has received no report yet.
	w.exec("INSERT INTO replica (id, name) VALUES ($1, 'new')", id.New[id.Replica]())
	if n := abandon(); n != 0 {
		t.Fatal("abandoned although it was the server that was away")
	}
	w.exec("UPDATE replica SET started_at = clock_timestamp() - interval '1 hour'")
	if n := abandon(); n != 1 || w.claimed() || !w.host().NeedsFullReport {
		t.Fatalf("abandoned %d, claimed %t, host %+v", n, w.claimed(), w.host())
	}
	w.sync(agentapi.Sync{Full: true, Revision: 1, Leases: w.shows(false)})
	if !w.host().NeedsFullReport {
		t.Fatal("the host still has the lease and may sell")
	}
	r := w.sync(agentapi.Sync{Full: true, Revision: 1})
	if w.host().NeedsFullReport {
		t.Error("the host is clean and may not sell")
	}
	if diff := cmp.Diff([]string{w.lease.String()}, texts(r.Gone)); diff != "" {
		t.Error(diff)
	}
}

func texts(ids []id.Lease) (out []string) {
	for _, v := range ids {
		out = append(out, v.String())
	}
	return out
}

// A host whose container engine does not answer sells nothing from that report on, and sells again by itself once the
// engine answers and a full report shows that nothing is left of ended leases.
func TestAHostWithoutItsEngineSellsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	away := &agentapi.EngineAway{Detail: "dial unix /run/docker.sock: \x1b[31mno such file"}
	w.sync(agentapi.Sync{Full: true, Leases: w.shows(false)})
	w.exec("UPDATE host SET blocked = ''")
	w.exec("UPDATE host_status SET connected = true")
	sells := func() string { h := w.host(); return h.Unsellable(time.Now()) }
	if why := sells(); why != "" {
		t.Fatalf("it does not sell: %s", why)
	}
	if r := w.sync(agentapi.Sync{
		Leases:     w.shows(false),
		EngineAway: away,
	}); r.EngineAway != "dial unix /run/docker.sock:  [31mno such file" {
		t.Errorf("the operator is told %q", r.EngineAway)
	}
	if why := sells(); why != "the host's container engine does not answer" {
		t.Errorf("it does not sell because %q", why)
	}
	if r := w.sync(agentapi.Sync{Leases: w.shows(false), EngineAway: away}); r.EngineAway != "" {
		t.Error("it is news a second time")
	}
	w.end()
	if r := w.sync(agentapi.Sync{Full: true, Revision: 1, EngineAway: away}); len(r.Gone) != 0 || !w.claimed() {
		t.Error("a host that cannot see its containers has proved that a lease is gone")
	}
	w.sync(agentapi.Sync{Revision: 1, Leases: w.shows(false)})
	if why := sells(); why == "" {
		t.Error("it sells before it has shown that it is clean")
	}
	w.sync(agentapi.Sync{Full: true, Revision: 1, Leases: w.shows(false)})
	if why := sells(); why == "" {
		t.Error("it sells with an ended lease still there")
	}
	w.sync(agentapi.Sync{Full: true, Revision: 1, Leases: w.shows(true)})
	if why := sells(); why != "" {
		t.Errorf("it is back and clean, and does not sell: %s", why)
	}
}
