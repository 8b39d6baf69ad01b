package host_test

import (
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// First reports that arrive together leave the same rows, and get the same orders, as those that come one by one, with
// fewer statements.
func TestFirstReports_StoredTogetherAsAlone(t *testing.T) {
	t.Parallel()
	const hosts = 24
	url := dbtest.NewURL(t)
	d := open(t, url)
	org, user := fleettest.Org(t, d)
	all := make([]id.Host, hosts)
	for i := range all {
		all[i] = fleettest.Enroll(t, d, org, user, 1).Host
	}
	slices.SortFunc(all, id.Host.Compare)
	exec(t, d, "UPDATE host SET revision = 7 WHERE id = $1", all[1])                               // its report is older
	exec(t, d, "UPDATE host SET state = 'active', needs_full_report = true WHERE id = $1", all[2]) // may sell again
	exec(t, d, "UPDATE host SET state = 'active', engine_away = 'it hangs' WHERE id = $1", all[3]) // responds again
	exec(t, d, "UPDATE host SET state = 'retired' WHERE id = $1", all[4])                          // stays so
	fleettest.Lease(t, d, all[5], org)
	exec(t, d, "UPDATE lease SET ended_at = now() WHERE host_id = $1", all[5]) // its claims end
	exec(t, d, `INSERT INTO agent_channel (name, version, source, percent, changed_by)
		VALUES ('stable', 'v2.0.0', 'https://x', 100, $1)`, user)
	d.Close()
	single := open(t, dbtest.Copy(t, url))
	together, killer := dbtest.Mortal(t, url)
	report := func(i int) agentapi.Sync {
		s := agentapi.Sync{Protocol: agentapi.Protocol, AgentVersion: "v1.0.0", BootID: "boot", BootMS: 5, Full: true,
			Revision: 3, Leases: []agentapi.LeaseStatus{}, Seq: 1, Capabilities: agentapi.Capabilities()}
		switch i {
		case 6:
			s.Capabilities = nil // too old to report updates
		case 7:
			s.Update = &agentapi.UpdateStatus{State: agentapi.UpdateRolledBack, Version: "v2.0.0", Try: 1}
		case 8:
			s.Update = &agentapi.UpdateStatus{State: agentapi.UpdateUnmanaged}
		case 9:
			s.Capabilities = []string{"null", "null", "x,y", "", "{}"} // of a hostile agent: a name, and what are no names
		}
		return s
	}
	type answer struct {
		Report host.Report
		Order  *agentapi.UpdateOrder
	}
	want, got := make([]answer, hosts), make([]answer, hosts)
	one := host.NewAgents(single, nil)
	for i, h := range all {
		r, err := one.RecordReportAlone(t.Context(), h, report(i))
		if err != nil {
			t.Fatal(err)
		}
		order, err := one.UpdateOrder(t.Context(), h, report(i))
		if err != nil {
			t.Fatal(err)
		}
		want[i] = answer{host.Report{Org: r.Org, Revision: r.Revision, Gone: r.Gone}, order}
	}
	many := host.NewAgents(together, nil)
	before := killer.Statements.Load()
	for _, step := range []func(i int){
		func(i int) {
			r, err := many.RecordReport(t.Context(), all[i], report(i))
			if err != nil || r.At.IsZero() {
				t.Errorf("host %d: reported at %v, %v", i, r.At, err)
			}
			got[i].Report = host.Report{Org: r.Org, Revision: r.Revision, Gone: r.Gone}
		},
		func(i int) {
			if i == 7 {
				return // below: it stops the channel
			}
			var err error
			if got[i].Order, err = many.UpdateOrder(t.Context(), all[i], report(i)); err != nil {
				t.Errorf("host %d: %v", i, err)
			}
		},
	} {
		var reports sync.WaitGroup
		for i := range all {
			reports.Go(func() { step(i) })
		}
		reports.Wait()
	}
	if n := killer.Statements.Load() - before; n > 5*hosts {
		t.Errorf("%d statements for %d hosts", n, hosts)
	}
	var err error
	if got[7].Order, err = many.UpdateOrder(t.Context(), all[7], report(7)); err != nil {
		t.Error(err)
	}
	for i := 8; i < hosts; i++ { // one by one, the channel had stopped before these
		if got[i].Order, err = many.UpdateOrder(t.Context(), all[i], report(i)); err != nil {
			t.Error(err)
		}
	}
	exported := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), exported); diff != "" {
		t.Errorf("one by one (-) and together (+):\n%s", diff)
	}
	const tables = `SELECT to_jsonb(h)::text || (to_jsonb(s) - 'last_sync_at' - 'full_report_at')::text ||
		(s.last_sync_at IS NULL) || (s.full_report_at IS NULL) || coalesce((to_jsonb(a) - 'changed_at')::text, '')
		FROM host h JOIN host_status s ON s.host_id = h.id LEFT JOIN host_agent a ON a.host_id = h.id ORDER BY h.id`
	if diff := cmp.Diff(rowsOf(t, single, tables), rowsOf(t, together, tables)); diff != "" {
		t.Errorf("one by one (-) and together (+):\n%s", diff)
	}
}
