package host_test

import (
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// Sums only rise, a report about another host's lease is ignored, only the operator sees the sums, and they are deleted
// after half a year.
func TestTrafficOfLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	org, user := fleettest.Org(t, w.d)
	other := fleettest.Enroll(t, w.d, org, user, 1)
	tell := func(h id.Host, epoch int, opened, up int64) {
		t.Helper()
		w.report(h, agentapi.Sync{Leases: []agentapi.LeaseStatus{{
			LeaseRef: agentapi.LeaseRef{Lease: w.lease.String(), Epoch: epoch},
			Traffic: &agentapi.Traffic{
				Opened:        opened,
				Refused:       2,
				Up:            up,
				Down:          7,
				OverlayUp:     2 * up,
				OverlayDown:   3 * up,
				RanksSent:     4 * up,
				RanksReceived: 5 * up,
			},
		}, {LeaseRef: agentapi.LeaseRef{Lease: w.lease.String(), Epoch: 1}}}})
	}
	read := func() []client.Traffic {
		t.Helper()
		all, err := host.New(w.d, nil).Traffic(t.Context(), account.Principal{Org: w.org}, w.agent.Host, 10)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	tell(w.agent.Host, 1, 5, 500)
	tell(w.agent.Host, 1, 9, 900)
	tell(w.agent.Host, 1, 5, 500) // late
	tell(other.Host, 1, 99, 9900)
	tell(w.agent.Host, 7, 99, 9900) // an epoch that never was
	all := read()
	if len(all) != 1 || all[0].LeaseID != w.lease || all[0].Connections != 9 || all[0].UpBytes != 900 ||
		all[0].Refused != 2 ||
		all[0].DownBytes != 7 || all[0].EndedAt != nil ||
		all[0].OverlayUp != 1800 || all[0].OverlayDown != 2700 {
		t.Errorf("%+v", all)
	}
	var sent, received int64
	if err := w.d.Pool.QueryRow(t.Context(),
		"SELECT ranks_sent_bytes, ranks_received_bytes FROM lease_traffic").Scan(&sent, &received); err != nil ||
		sent != 3600 || received != 4500 {
		t.Errorf("between ranks %d and %d, %v", sent, received, err)
	}
	if _, err := host.New(w.d, nil).Traffic(t.Context(), account.Principal{Org: id.New[id.Org]()}, w.agent.Host,
		10); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org's: %v", err)
	}
	w.exec("UPDATE lease_traffic SET last_at = clock_timestamp() - interval '179 days'")
	if n, err := host.DropOldTraffic(t.Context(), w.d); n != 0 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	w.exec("UPDATE lease_traffic SET last_at = clock_timestamp() - interval '181 days'")
	if n, err := host.DropOldTraffic(t.Context(), w.d); n != 1 || err != nil || len(read()) != 0 {
		t.Errorf("dropped %d, %v", n, err)
	}
}

// Hosts with leases report traffic every few seconds. What a host has used this month is read with each of these
// reports only if it has a data cap.
func TestRecordReport_ReadsDataUseOnlyUnderACap(t *testing.T) {
	t.Parallel()
	const many = 1 << 40
	d, k := dbtest.NewMortal(t)
	org, user := fleettest.Org(t, d)
	agent := fleettest.Enroll(t, d, org, user, 1)
	_, lease := fleettest.Lease(t, d, agent.Host, org)
	agents := host.NewAgents(d, nil)
	statements := func(up int64) int64 {
		t.Helper()
		s := agentapi.Sync{Leases: []agentapi.LeaseStatus{{
			LeaseRef: agentapi.LeaseRef{Lease: lease.String(), Epoch: 1}, Traffic: &agentapi.Traffic{Up: up},
		}}}
		k.Left.Store(many)
		if _, err := agents.RecordReport(t.Context(), agent.Host, s); err != nil {
			t.Fatal(err)
		}
		return many - k.Left.Load()
	}
	statements(1) // prepares what it sends
	without := statements(2)
	if _, err := d.Pool.Exec(t.Context(), "UPDATE host SET up_cap_gb = 1 WHERE id = $1", agent.Host); err != nil {
		t.Fatal(err)
	}
	if with := statements(3); with != without+1 {
		t.Errorf("%d statements with a data cap, %d without", with, without)
	}
}
