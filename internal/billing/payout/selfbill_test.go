package payout

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// A month of earnings has one self-billing document, with both parties, the fee and what went back, once however often
// the job runs; an operator without earnings has none.
func TestSelfBill_OncePerMonth(t *testing.T) {
	t.Parallel()
	x := funded(t, 1000*money.Unit)
	x.p.cfg.Merchant = account.Party{
		Name:    "Muster Ltd",
		Address: []string{"1 Street"},
		Country: "DE",
		VATID:   "DE136695976",
	}
	if _, err := x.DB.Pool.Exec(t.Context(), "INSERT INTO org_legal (org_id, name, address, country, vat_id) VALUES "+
		"($1, 'Hosts SARL', '{b}', 'FR', 'FR40303265045')", x.operator); err != nil {
		t.Fatal(err)
	}
	x.Tx(func(ctx context.Context, tx *db.Tx) error { // a charge of 60 with a fee of 10
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "usage", Key: "usage:test", Transfers: []ledger.Transfer{
			{Debit: ledger.StripeClearing(eur), Credit: ledger.HostPending(x.operator, eur), Amount: 50 * money.Unit},
			{Debit: ledger.StripeClearing(eur), Credit: ledger.Fee(eur), Amount: 10 * money.Unit}}})
		return err
	})
	x.giveBack(5 * money.Unit)
	now := x.Now()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if n, err := x.p.IssueSelfBills(t.Context()); err != nil || n != 0 {
		t.Fatal("a month that is not over was billed", n, err)
	}
	for want := 1; want >= 0; want-- {
		if n, err := x.p.selfBillMonth(t.Context(), first); err != nil || n != want {
			t.Fatal(n, err)
		}
	}
	x.Tx(func(ctx context.Context, tx *db.Tx) error { return x.p.selfBill(ctx, tx, x.operator, first) }) // a race
	if _, err := x.DB.Pool.Exec(t.Context(), "UPDATE org_legal SET name = 'Another SARL'"); err != nil {
		t.Fatal(err)
	}
	list, err := x.p.SelfBills(t.Context(), x.operator, strconv.Itoa(now.Year()))
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v", list, err)
	}
	b := list[0]
	if b.Billed != 55*money.Unit || b.Fee != 10*money.Unit || b.Earned != 50*money.Unit || b.Returned != 5*money.Unit ||
		b.Total != 45*money.Unit ||
		b.Supplier.Name != "Hosts SARL" || b.Recipient.Name != "Muster Ltd" || b.Treatment != ReverseChargeVAT ||
		b.Month != first.Format("2006-01") ||
		!strings.HasPrefix(b.Wording, "Self-billing") || !strings.HasPrefix(b.Number, "S-") {
		t.Errorf("%+v", b)
	}
	if got, err := x.p.SelfBill(t.Context(), x.operator, b.Number); err != nil || got.Total != b.Total {
		t.Error(got, err)
	}
	if list, err := x.p.SelfBills(t.Context(), x.renter.Org, strconv.Itoa(now.Year())); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	var csv bytes.Buffer
	if err := SelfBillsCSV(&csv, list); err != nil || !strings.Contains(csv.String(), b.Number) {
		t.Error(csv.String(), err)
	}
	checks, err := document.CheckAll(t.Context(), x.DB.Q)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Problem != "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestSelfBill_VATTreatment(t *testing.T) {
	t.Parallel()
	merchant := account.Party{Country: "DE"}
	for _, c := range []struct {
		country, vat string
		want         Treatment
	}{
		{"DE", "DE136695976", DomesticVAT}, {"DE", "", NoVATID}, {"FR", "FR40303265045", ReverseChargeVAT},
		{"FR", "", NoVATID},
		{"US", "", ReverseChargeVAT}, {"", "", UnknownVAT},
	} {
		if got := treat(account.Party{Country: c.country, VATID: c.vat}, merchant); got != c.want || noteOf(got) == "" {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := treat(account.Party{Country: "DE", VATID: "DE136695976"}, account.Party{}); got != UnknownVAT {
		t.Error(got)
	}
}
