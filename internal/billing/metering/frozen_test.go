package metering

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// seeFrozen looks at the world's first lease as an admin does: it is frozen for that lie.
func (w *world) seeFrozen(lie agentapi.Segment) {
	w.T.Helper()
	admin := account.Principal{Org: w.operator, Admin: true}
	list, err := NewLeases(w.DB).Frozen(w.T.Context(), admin)
	if err != nil || len(list) != 1 {
		w.T.Fatalf("frozen: %+v %v", list, err)
	}
	f := list[0]
	if f.Lease != w.leases[0] || f.Cluster != w.cluster || f.Host != w.host || f.Renter != w.renter ||
		f.Operator != w.operator {
		w.T.Errorf("frozen: %+v", f)
	}
	mustEqual(w.T, "posted", f.Posted, money.CostOf(3_600_000, 60_000))
	mustEqual(w.T, "waiting", f.Waiting, money.CostOf(3_600_000, 40_000))
	if len(f.Conflicts) != 1 || f.Conflicts[0].Seq != lie.Seq || f.Conflicts[0].OtherTo.UnixMilli() != lie.EndMS ||
		f.Conflicts[0].To.UnixMilli() != lie.StartMS+60_000 {
		w.T.Errorf("both accounts are shown: %+v", f.Conflicts)
	}
	refused, err := NewLeases(w.DB).Quarantined(w.T.Context(), admin, 0, 10)
	if err != nil || len(refused) != 1 || refused[0].Reason != refusedConflict || refused[0].Lease != lie.Lease ||
		refused[0].Why == "" {
		w.T.Errorf("refused: %+v %v", refused, err)
	}
	if older, err := NewLeases(w.DB).Quarantined(w.T.Context(), admin, refused[0].ID, 10); err != nil || len(older) != 0 {
		w.T.Errorf("older than the oldest: %+v %v", older, err)
	}
	nobody := account.Principal{Org: w.operator}
	if _, err := NewLeases(w.DB).Frozen(w.T.Context(), nobody); !fault.Is(err, fault.Forbidden) {
		w.T.Errorf("the operator sees all frozen leases: %v", err)
	}
	if _, err := NewLeases(w.DB).Quarantined(w.T.Context(), nobody, 0, 10); !fault.Is(err, fault.Forbidden) {
		w.T.Errorf("the operator sees all refused segments: %v", err)
	}
	leases := NewLeases(w.DB)
	for kind, err := range map[fault.Kind]error{
		fault.Forbidden: billingtest.Err(leases.Unfreeze(w.T.Context(), nobody, f.Lease, "it was me", idem.Request{})),
		fault.Invalid:   billingtest.Err(leases.Unfreeze(w.T.Context(), admin, f.Lease, " ", idem.Request{})),
		fault.NotFound:  billingtest.Err(leases.Unfreeze(w.T.Context(), admin, id.New[id.Lease](), "x", idem.Request{})),
	} {
		if !fault.Is(err, kind) {
			w.T.Errorf("%s: %v", kind, err)
		}
	}
}

// An unfreeze is recorded in the audit log with its reason, and the host's operator reads it.
func TestUnfreeze_NotifiesAndAudits(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+60_000, false))
	w.ingest(w.segment(w.leases[0], 1, t0, t0+90_000, false))
	if err := billingtest.Err(NewLeases(w.DB).Unfreeze(w.T.Context(), account.Principal{
		Org:   w.renter,
		Admin: true,
	}, w.leases[0], "restored from a backup", idem.Request{})); err != nil {
		t.Fatal(err)
	}
	trail, err := audit.List(t.Context(), w.DB.Q, w.renter, id.Audit{}, 10)
	if err != nil || len(trail) != 1 || trail[0].Action != "lease.unfreeze" || trail[0].Object != w.leases[0].String() ||
		trail[0].Detail["reason"] != "restored from a backup" {
		t.Errorf("%+v %v", trail, err)
	}
	var told int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND body LIKE '%restored "+
		"from a backup%'", w.operator).Scan(&told); err != nil || told != 1 {
		t.Errorf("told %d times: %v", told, err)
	}
}
