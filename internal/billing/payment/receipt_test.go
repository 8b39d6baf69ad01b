package payment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

var sameIDs = cmp.Comparer(func(a, b id.TopUp) bool { return a == b })

// A receipt stays as it was when the payment arrived, whatever its parties call themselves later; what goes back stands
// beside it.
func TestReceipt_Immutable(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.p.core.cfg.Taxer = tax.Flat{Rates: tax.EU()}
	s.p.core.cfg.Merchant = account.Party{
		Name:    "Muster Ltd",
		Address: []string{"1 Street"},
		Country: "DE",
		VATID:   "DE136695976",
	}
	told := func(name, country string) {
		t.Helper()
		if _, err := s.DB.Pool.Exec(t.Context(), `INSERT INTO org_legal (org_id, name, address, country) VALUES ($1, $2,
			'{b}', $3)
			ON CONFLICT (org_id) DO UPDATE SET name = excluded.name, country =
			excluded.country`, s.payer.Org, name, country); err != nil {
			t.Fatal(err)
		}
	}
	told("Ada GmbH", "DE")
	paid := s.topUp(100 * money.Unit)
	s.want(paid, Succeeded)
	read := func() Receipt {
		t.Helper()
		r, err := s.p.Receipts.Get(t.Context(), s.payer.Org, paid.ID)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := read()
	if first.Customer.Name != "Ada GmbH" || !first.CustomerKnown || first.Merchant.Name != "Muster Ltd" ||
		first.Net != 100*money.Unit || first.Tax.Amount != 19*money.Unit ||
		first.Tax.Percent != "19" || first.Total != 119*money.Unit || first.Left != first.Total || len(first.Returned) != 0 ||
		first.Number == "" || first.Payment == "" || first.PaidAt.IsZero() {
		t.Fatalf("%+v", first)
	}
	told("Another AG", "FR")
	s.p.core.cfg.Merchant = account.Party{Name: "Another Ltd"}
	if diff := cmp.Diff(first, read(), sameIDs); diff != "" {
		t.Fatal(diff)
	}
	if _, _, err := s.p.Refunds.GiveBack(t.Context(), s.payer, 50*money.Unit, idem.Request{}); err != nil {
		t.Fatal(err)
	}
	r := read()
	if len(r.Returned) != 1 || r.Returned[0].Total != 59*money.Unit+50*money.Cent || r.Returned[0].Tax != 9*money.Unit+
		50*money.Cent || r.Left != 59*money.Unit+50*money.Cent {
		t.Fatalf("%+v", r)
	}
	r.Returned, r.Left = first.Returned, first.Left
	if diff := cmp.Diff(first, r, sameIDs); diff != "" {
		t.Fatal(diff)
	}
	if _, err := s.DB.Pool.Exec(t.Context(), "UPDATE receipt SET content = '{}'"); err == nil {
		t.Fatal("a receipt was changed")
	}
	if _, err := s.p.Receipts.Get(t.Context(), id.New[id.Org](), paid.ID); fault.KindOf(err) != fault.NotFound {
		t.Fatal("another org reads it", err)
	}
}

// A payment taken by a version without receipts gets one when it is first read; what was not paid has
// none.
func TestReceipt_OlderPayment(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	paid := s.topUp(7 * money.Unit)
	s.want(paid, Succeeded)
	if _, err := s.DB.Pool.Exec(t.Context(), "ALTER TABLE receipt DISABLE TRIGGER receipt_immutable; DELETE FROM "+
		"receipt; ALTER TABLE receipt ENABLE TRIGGER receipt_immutable"); err != nil {
		t.Fatal(err)
	}
	first, err := s.p.Receipts.Get(t.Context(), s.payer.Org, paid.ID)
	if err != nil || first.CustomerKnown || first.Customer.Name == "" || first.Total != 7*money.Unit {
		t.Fatalf("%+v %v", first, err)
	}
	if _, err := s.DB.Pool.Exec(t.Context(), "UPDATE org SET name = 'renamed'"); err != nil {
		t.Fatal(err)
	}
	again, err := s.p.Receipts.Get(t.Context(), s.payer.Org, paid.ID)
	if diff := cmp.Diff(first, again, sameIDs); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	failed := id.New[id.TopUp]()
	s.Exec("INSERT INTO topup (id, org_id, amount, currency, state) VALUES ($1, $2, 10, 'EUR', 'failed')", failed,
		s.payer.Org)
	if _, err := s.p.Receipts.Get(t.Context(), s.payer.Org, failed); fault.KindOf(err) != fault.Conflict {
		t.Fatal(err)
	}
}
