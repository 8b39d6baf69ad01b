package statement_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// The invoices of the months in which the rental may lie add up to its cost, less what was given back.
func TestInvoice_SumsToTheBill(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 0, ranMS)
	r.prove(t, 1, 0, ranMS-4_200)
	r.end(t)
	u, err := statement.New(r.DB, "EUR", statement.Party{}).ClusterUsage(t.Context(), r.cluster)
	if err != nil {
		t.Fatal(err)
	}
	var charge id.LedgerTx
	if err := r.DB.Pool.QueryRow(t.Context(),
		"SELECT id FROM ledger_tx WHERE kind = 'usage' ORDER BY id LIMIT 1").Scan(&charge); err != nil {
		t.Fatal(err)
	}
	back := money.Nano(123_456_789)
	r.Tx(func(ctx context.Context, tx *db.Tx) error {
		e, err := ledger.Compensate(ctx, tx, charge, back, "slow disk")
		if err != nil {
			return err
		}
		_, err = ledger.Post(ctx, tx, e)
		return err
	})
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	months := []string{time.UnixMilli(r.start).In(zone).Format("2006-01"), time.Now().In(zone).Format("2006-01")}
	numbers := map[string]bool{}
	var usage, credited, total, lines money.Nano
	for _, m := range slices.Compact(months) {
		v, err := statement.New(r.DB, "EUR", statement.Party{Name: "Muster Ltd"}).InvoiceOf(t.Context(), r.renter, "Ada", m)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range v.Lines {
			lines += l.Cost
			if l.Key != r.cluster.String() {
				t.Errorf("%+v", l)
			}
		}
		for _, c := range v.Credits {
			if c.Kind != "compensation" || c.Why != "slow disk" || c.Amount != back {
				t.Errorf("%+v", c)
			}
		}
		usage, credited, total = usage+v.Usage, credited+v.Credited, total+v.Total
		numbers[v.Number] = true
		if v.Final || v.Customer.Name != "Ada" || v.CustomerKnown || v.Merchant.Name != "Muster Ltd" ||
			v.Zone != "Europe/Berlin" || !strings.HasPrefix(v.From, m) || !strings.HasPrefix(v.To, m) {
			t.Errorf("%+v", v)
		}
	}
	if usage != u.Cost || lines != usage || credited != back || total != usage-back || usage == 0 {
		t.Errorf("usage %s, lines %s, cost %s, credited %s, total %s", usage, lines, u.Cost, credited, total)
	}
	// The operator is charged nothing, and its number is another.
	v, err := statement.New(r.DB, "EUR", statement.Party{}).InvoiceOf(t.Context(), r.operator, "Op", "")
	if err != nil || v.Total != 0 || len(v.Lines)+len(v.Credits) != 0 || numbers[v.Number] {
		t.Errorf("%+v %v", v, err)
	}
	long, err := statement.New(r.DB, "EUR", statement.Party{}).InvoiceOf(t.Context(), r.renter, "Ada", "2020-02")
	if err != nil || !long.Final || long.From != "2020-02-01" || long.To != "2020-02-29" || long.Issued != "2020-03-01" ||
		long.Previous != "2020-01" || long.Next != "2020-03" {
		t.Errorf("%+v %v", long, err)
	}
	for _, bad := range []string{"2020-13", "2020-1", "2999-01", "x", "2020-01-01", "-001-01"} {
		if _, err := statement.New(r.DB, "EUR", statement.Party{}).InvoiceOf(t.Context(), r.renter, "Ada",
			bad); !fault.Is(err,
			fault.NotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
