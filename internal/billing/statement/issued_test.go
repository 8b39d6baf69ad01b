package statement_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// An invoice is issued once, by itself when its month is closed, and stays: new names, another merchant and what is
// given back later do not change it.
func TestInvoice_Immutable(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 0, ranMS)
	r.prove(t, 1, 0, ranMS)
	r.end(t)
	const back = 40 * 24 * 3_600_000 // ms: into a month that is over
	if _, err := r.DB.Pool.Exec(t.Context(), `
		SET LOCAL session_replication_role = replica; -- history never changes, but in this test
		UPDATE usage_segment SET start_ms = start_ms - 3456000000, end_ms = end_ms - 3456000000;
		UPDATE cluster_window SET opened_ms = opened_ms - 3456000000, confirmed_until_ms = confirmed_until_ms -
		3456000000, closed_ms = closed_ms - 3456000000;
		UPDATE lease_meter SET settled_through_ms = settled_through_ms - 3456000000;
		UPDATE lease SET created_at = created_at - interval '40 days', ended_at = ended_at - interval '40 days', run_until = run_until - interval '40 days'`); err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	month := time.UnixMilli(r.start - back).In(zone).Format("2006-01")
	for range 2 {
		if _, err := statement.New(r.DB, "EUR", statement.Party{
			Name:    "Muster Ltd",
			Address: []string{"1 Street"},
		}).IssueInvoices(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var kept int
	if err := r.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM invoice WHERE org_id = $1 AND month = $2", r.renter,
		month).Scan(&kept); err != nil || kept != 1 {
		t.Fatalf("issued %d times: %v", kept, err)
	}
	see := func(name, merchant string) statement.Invoice {
		t.Helper()
		v, err := statement.New(r.DB, "EUR", statement.Party{Name: merchant}).InvoiceOf(t.Context(), r.renter, name, month)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := see("o", "Another Ltd")
	if !first.Final || first.Customer.Name != "o" || first.Merchant.Name != "Muster Ltd" || len(first.Lines) != 1 ||
		first.Total <= 0 || first.Previous == "" || first.Next == "" {
		t.Errorf("%+v", first)
	}

	var charge id.LedgerTx
	if err := r.DB.Pool.QueryRow(t.Context(),
		"SELECT id FROM ledger_tx WHERE kind = 'usage' ORDER BY id LIMIT 1").Scan(&charge); err != nil {
		t.Fatal(err)
	}
	r.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Compensate(ctx, tx, charge, 1_000, "too late for it")
		return err
	})
	if _, err := r.DB.Pool.Exec(t.Context(), "UPDATE org SET name = 'renamed' WHERE id = $1", r.renter); err != nil {
		t.Fatal(err)
	}
	if _, err := statement.New(r.DB, "EUR", statement.Party{Name: "Another Ltd"}).IssueInvoices(t.Context()); err != nil {
		t.Fatal(err)
	}
	asJSON := func(v statement.Invoice) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if diff := cmp.Diff(asJSON(first), asJSON(see("renamed", "Another Ltd"))); diff != "" {
		t.Errorf("it has changed: %s", diff)
	}
	now, err := statement.New(r.DB, "EUR", statement.Party{}).InvoiceOf(t.Context(), r.renter, "renamed", "")
	if err != nil || now.Credited != 1_000 || now.Final {
		t.Errorf("the credit is on the running month's: %+v %v", now, err)
	}
	for _, forbidden := range []string{"UPDATE invoice SET number = 'x'", "DELETE FROM invoice", "TRUNCATE invoice"} {
		if _, err := r.DB.Pool.Exec(t.Context(), forbidden); err == nil {
			t.Errorf("%s is allowed", forbidden)
		}
	}
}
