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
)

// seeFrozen looks at the world's first lease as an admin does: it is frozen for that lie.
func (w *world) seeFrozen(lie agentapi.Segment) {
	w.t.Helper()
	admin := account.Principal{Org: w.operator, Admin: true}
	list, err := NewLeases(w.d).Frozen(w.t.Context(), admin)
	if err != nil || len(list) != 1 {
		w.t.Fatalf("frozen: %+v %v", list, err)
	}
	f := list[0]
	if f.Lease != w.leases[0] || f.Cluster != w.cluster || f.Host != w.host || f.Renter != w.renter ||
		f.Operator != w.operator {
		w.t.Errorf("frozen: %+v", f)
	}
	mustEqual(w.t, "posted", f.Posted, money.CostOf(3_600_000, 60_000))
	mustEqual(w.t, "waiting", f.Waiting, money.CostOf(3_600_000, 40_000))
	if len(f.Conflicts) != 1 || f.Conflicts[0].Seq != lie.Seq || f.Conflicts[0].OtherTo.UnixMilli() != lie.EndMS ||
		f.Conflicts[0].To.UnixMilli() != lie.StartMS+60_000 {
		w.t.Errorf("both accounts are shown: %+v", f.Conflicts)
	}
	refused, err := NewLeases(w.d).Quarantined(w.t.Context(), admin, 0, 10)
	if err != nil || len(refused) != 1 || refused[0].Reason != refusedConflict || refused[0].Lease != lie.Lease ||
		refused[0].Why == "" {
		w.t.Errorf("refused: %+v %v", refused, err)
	}
	if older, err := NewLeases(w.d).Quarantined(w.t.Context(), admin, refused[0].ID, 10); err != nil || len(older) != 0 {
		w.t.Errorf("older than the oldest: %+v %v", older, err)
	}
	nobody := account.Principal{Org: w.operator}
	if _, err := NewLeases(w.d).Frozen(w.t.Context(), nobody); !fault.Is(err, fault.Forbidden) {
		w.t.Errorf("the operator sees all frozen leases: %v", err)
	}
	if _, err := NewLeases(w.d).Quarantined(w.t.Context(), nobody, 0, 10); !fault.Is(err, fault.Forbidden) {
		w.t.Errorf("the operator sees all refused segments: %v", err)
	}
	leases := NewLeases(w.d)
	for kind, err := range map[fault.Kind]error{
		fault.Forbidden: failed(leases.Unfreeze(w.t.Context(), nobody, f.Lease, "it was me", idem.Request{})),
		fault.Invalid:   failed(leases.Unfreeze(w.t.Context(), admin, f.Lease, " ", idem.Request{})),
		fault.NotFound:  failed(leases.Unfreeze(w.t.Context(), admin, id.New[id.Lease](), "x", idem.Request{})),
	} {
		if !fault.Is(err, kind) {
			w.t.Errorf("%s: %v", kind, err)
		}
	}
}

// An unfreeze is recorded in the audit log with its reason, and the host's operator reads it.
func TestUnfreezingIsToldAndKept(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+60_000, false))
	w.ingest(w.segment(w.leases[0], 1, t0, t0+90_000, false))
	if err := failed(NewLeases(w.d).Unfreeze(w.t.Context(), account.Principal{
		Org:   w.renter,
		Admin: true,
	}, w.leases[0], "restored from a backup", idem.Request{})); err != nil {
		t.Fatal(err)
	}
	trail, err := audit.List(t.Context(), w.d.Q, w.renter, id.Audit{}, 10)
	if err != nil || len(trail) != 1 || trail[0].Action != "lease.unfreeze" || trail[0].Object != w.leases[0].String() ||
		trail[0].Detail["reason"] != "restored from a backup" {
		t.Errorf("%+v %v", trail, err)
	}
	var told int
	if err := w.d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND body LIKE '%restored "+
		"from a backup%'", w.operator).Scan(&told); err != nil || told != 1 {
		t.Errorf("told %d times: %v", told, err)
	}
}
