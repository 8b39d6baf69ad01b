package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func TestPostpaidByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	var of id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT m.org_id FROM membership m JOIN app_user u ON u.id = m.user_id "+
		"WHERE u.email = 'ada@example.com'").Scan(&of); err != nil {
		t.Fatal(err)
	}
	org := of.String()
	if r := p.run("", "admin", "postpaid", "on", org, "--limit", "500", "--reason", "me"); r.code != 1 {
		t.Errorf("a renter may: exit %d %s", r.code, r.out)
	}
	p.admin("ada@example.com")
	for _, args := range [][]string{{"on", "ada", "--limit", "5", "--reason", "x"},
		{"on", org, "--limit", "five", "--reason", "x"}, {"on", org, "--limit", "5"}, {"off", org}} {
		if r := p.run("", append([]string{"admin", "postpaid"}, args...)...); r.code != 2 {
			t.Errorf("%v: exit %d %s", args, r.code, r.errs)
		}
	}
	if out := p.ok("admin", "postpaid", "on", org, "--limit", "500", "--reason", "contract 17"); !strings.Contains(out,
		"500") {
		t.Error(out)
	}
	if out := p.ok("admin", "postpaid", "list"); !strings.Contains(out, org) || !strings.Contains(out, "on") {
		t.Error(out)
	}
	if out := p.ok("admin", "postpaid", "off", org, "--reason", "over"); !strings.Contains(out, "Ending") {
		t.Error(out)
	}
}

func TestWriteOffByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.admin("ada@example.com")
	var of id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT m.org_id FROM membership m JOIN app_user u ON u.id = m.user_id "+
		"WHERE u.email = 'ada@example.com'").Scan(&of); err != nil {
		t.Fatal(err)
	}
	org := of.String()
	p.ok("admin", "postpaid", "on", org, "--limit", "500", "--reason", "contract 17")
	if _, err := p.db.Pool.Exec(t.Context(), `INSERT INTO postpaid_invoice (id, org_id, currency, number, state,
		period_start, period_end, charged, due, total, metered, attempts, made_at)
		SELECT 'in_1', $1, currency, 'N-1', 'open', now(), now(), 0, 1000, 1000, 1000, 1, now() FROM
		postpaid_org`, of); err != nil {
		t.Fatal(err)
	}
	if out := p.ok("admin", "postpaid", "invoices", org); !strings.Contains(out, "in_1") ||
		!strings.Contains(out, "not paid") {
		t.Error(out)
	}
	if out := p.ok("admin", "todo"); !strings.Contains(out, "invoices that no card pays") {
		t.Error(out)
	}
	for _, args := range [][]string{{"write-off", org, "in_1"}, {"write-off", "ada", "in_1", "--reason", "x"},
		{"invoices", "ada"}} {
		if r := p.run("", append([]string{"admin", "postpaid"}, args...)...); r.code != 2 {
			t.Errorf("%v: exit %d %s", args, r.code, r.errs)
		}
	}
	if out := p.ok("admin", "postpaid", "write-off", org, "in_1", "--reason", "insolvent"); !strings.Contains(out,
		"Given up") {
		t.Error(out)
	}
	if _, err := p.db.Pool.Exec(t.Context(),
		"UPDATE postpaid_writeoff SET state = 'booked', amount = 10000000000"); err != nil {
		t.Fatal(err)
	}
	if out := p.ok("admin", "postpaid", "invoices", org); !strings.Contains(out, "10.000000000 written off") &&
		!strings.Contains(out, "10.00 written off") {
		t.Error(out)
	}
	if _, err := p.db.Pool.Exec(t.Context(), `INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency,
		reason, state, paid_at) VALUES ('re_1', $1, 'in_1', 'refund', 10000000000, 0, 'USD', 'given back at Stripe', 'open',
		now())`, of); err != nil {
		t.Fatal(err)
	}
	if r := p.run("", "admin", "postpaid", "release-refund", "re_1"); r.code != 2 {
		t.Errorf("no reason: exit %d %s", r.code, r.errs)
	}
	if out := p.ok("admin", "postpaid", "release-refund", "re_1", "--reason", "our fault"); !strings.Contains(out,
		"as usual") {
		t.Error(out)
	}
	if out := p.ok("admin", "postpaid", "list"); !strings.Contains(out, "written off") {
		t.Error(out)
	}
}

func TestPaidByBankByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.admin("ada@example.com")
	var of id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT m.org_id FROM membership m JOIN app_user u ON u.id = m.user_id "+
		"WHERE u.email = 'ada@example.com'").Scan(&of); err != nil {
		t.Fatal(err)
	}
	org := of.String()
	p.ok("admin", "postpaid", "on", org, "--limit", "500", "--reason", "contract 17")
	var currency string
	if err := p.db.Pool.QueryRow(t.Context(), `INSERT INTO postpaid_invoice (id, org_id, currency, number, state,
		period_start, period_end, charged, due, total, metered, attempts, made_at)
		SELECT 'in_1', $1, currency, 'N-1', 'paid', now(), now(), 0, 1000, 1000, 1000, 1, now() FROM postpaid_org RETURNING
		currency`, of).Scan(&currency); err != nil {
		t.Fatal(err)
	}
	paid := []string{"admin", "postpaid", "paid-by-bank", org, "in_1", "4.00", "--reference", "T 1", "--reason",
		"on the statement"}
	if r := p.run("", paid...); r.code != 1 || !strings.Contains(r.errs, "no lost dispute") {
		t.Errorf("nobody disputed it: exit %d %s", r.code, r.errs)
	}
	if _, err := p.db.Pool.Exec(t.Context(), `INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency,
		reason, state, paid_at)
		VALUES ('dp_1', $1, 'in_1', 'dispute', 10000000000, 0, $2, 'fraudulent', 'lost', now())`, of, currency); err != nil {
		t.Fatal(err)
	}
	if err := p.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "dispute_funds",
			Key:  "stripe:txn_1",
			Ref:  of.String(),
			Memo: "dp_1",
			Transfers: []ledger.Transfer{{
				Debit:  ledger.Receivable(of, currency),
				Credit: ledger.StripeClearing(currency),
				Amount: 10 * money.Unit,
			}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{org, "in_1", "4.00", "--reason", "x"}, {org, "in_1", "4.00", "--reference", "T 1"},
		{org, "in_1", "four", "--reference", "T 1", "--reason", "x"}, {"ada", "in_1", "4.00", "--reference", "T 1",
			"--reason", "x"}} {
		if r := p.run("", append([]string{"admin", "postpaid", "paid-by-bank"}, args...)...); r.code != 2 {
			t.Errorf("%v: exit %d %s", args, r.code, r.errs)
		}
	}
	for range 2 {
		if out := p.ok(paid...); !strings.Contains(out, "Booked: 4.00") || !strings.Contains(out, "6.00") {
			t.Error(out)
		}
	}
	if out := p.ok("admin", "postpaid", "invoices", org); !strings.Contains(out, "lost in a dispute") ||
		!strings.Contains(out, "paid by bank") {
		t.Error(out)
	}
}
