package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func TestPostpaid(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, boss := w.user("ada"), w.boss("ann")
	org := w.want(w.call(renter, "GET", "/api/v1/me", nil), 200, "").text("org.id")
	path := "/api/v1/admin/postpaid/" + org
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid", nil), 200, ""); r.text("state") != "off" ||
		r.text("credit_limit") != "0.000000000" {
		t.Error(r.raw)
	}
	on := `{"on":true,"credit_limit":"500.00","reason":"contract 2026-17"}`
	w.want(w.call(renter, "PATCH", path, on), 403, "forbidden")
	w.want(w.call(renter, "GET", "/api/v1/admin/postpaid", nil), 403, "forbidden")
	w.want(w.call(boss, "PATCH", "/api/v1/admin/postpaid/"+"org_0", on), 404, "not_found")
	w.want(w.call(boss, "PATCH", path, `{"on":true,"reason":"x"}`), 422, "validation_failed")
	w.want(w.call(boss, "PATCH", path, `{"on":true,"credit_limit":"500.00"}`), 422, "validation_failed")

	if r := w.want(w.call(boss, "PATCH", path, on), 200, ""); r.text("state") != "on" ||
		r.text("left") != "500.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid", nil), 200,
		""); r.text("credit_limit") != "500.000000000" || r.text("reason") != "contract 2026-17" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/balance", nil), 200,
		""); r.text("available") != "500.000000000" || r.text("credit") != "500.000000000" ||
		r.text("owed") != "0.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(boss, "GET", "/api/v1/admin/postpaid", nil), 200, ""); len(r.json["items"].([]any)) != 1 {
		t.Error(r.raw)
	}

	// It rents without having paid anything.
	w.sell(boss, 2, "2.00")
	w.want(w.call(renter, "POST", "/api/v1/clusters", `{"image":"x/y:1","nodes":1,"gpus_per_node":1}`), 202, "")
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/balance", nil), 200,
		""); r.text("available") != "498.000000000" || r.text("held") != "2.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid", nil), 200, ""); r.text("used") != "2.000000000" ||
		r.text("left") != "498.000000000" {
		t.Error(r.raw)
	}
	// credit is not its money
	w.want(w.call(renter, "POST", "/api/v1/billing/refunds", `{"amount":"1.00"}`), 409, "conflict")
	if r := w.want(w.call(boss, "PATCH", path, `{"on":false,"reason":"contract ended"}`), 200,
		""); r.text("state") != "ending" || r.text("left") != "0.000000000" {
		t.Error(r.raw)
	}
	w.want(w.call(renter, "POST", "/api/v1/clusters", `{"image":"x/y:1","nodes":1,"gpus_per_node":1}`), 402,
		"insufficient_funds")
}

// lose has an invoice's payment of 10.00 taken back by a lost dispute.
func (w *world) lose(org id.Org, invoice string) {
	w.t.Helper()
	if _, err := w.db.Pool.Exec(w.t.Context(), `INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency,
		reason, state, paid_at)
		VALUES ('dp_1', $1, $2, 'dispute', 10000000000, 0, 'USD', 'fraudulent', 'lost', now())`, org, invoice); err != nil {
		w.t.Fatal(err)
	}
	if err := w.db.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "dispute_funds",
			Key:  "stripe:txn_1",
			Ref:  org.String(),
			Memo: "dp_1",
			Transfers: []ledger.Transfer{{
				Debit:  ledger.Receivable(org, "USD"),
				Credit: ledger.StripeClearing("USD"),
				Amount: 10 * money.Unit,
			}},
		})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// A platform operator gives up an invoice that the card did not pay; no one else, and no other invoice.
func TestWriteOff(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, boss := w.user("ada"), w.boss("ann")
	org := w.want(w.call(renter, "GET", "/api/v1/me", nil), 200, "").text("org.id")
	w.want(w.call(boss, "PATCH", "/api/v1/admin/postpaid/"+org, `{"on":true,"credit_limit":"500.00","reason":"x"}`), 200,
		"")
	of, err := id.Parse[id.Org](org)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"open", "paid"} {
		if _, err := w.db.Pool.Exec(t.Context(), `INSERT INTO postpaid_invoice (id, org_id, currency, number, state,
			period_start, period_end, charged, due, total, metered, attempts, made_at)
			VALUES ('in_' || $2, $1, 'USD', 'N-' || $2, $2, now(), now(), 0, 1000, 1000, 1000, 1,
			now())`, of, state); err != nil {
			t.Fatal(err)
		}
	}
	list, why := "/api/v1/admin/orgs/"+org+"/invoices", `{"reason":"insolvent"}`
	w.want(w.call(renter, "GET", list, nil), 403, "forbidden")
	w.want(w.call(renter, "POST", list+"/in_open/write-off", why), 403, "forbidden")
	w.want(w.call(boss, "POST", list+"/in_open/write-off", `{"reason":""}`), 422, "validation_failed")
	w.want(w.call(boss, "POST", list+"/in_none/write-off", why), 404, "not_found")
	w.want(w.call(boss, "POST", list+"/in_paid/write-off", why), 409, "conflict")
	paid := `{"amount":"1.00","reference":"T 1","reason":"x"}`
	w.want(w.call(renter, "POST", list+"/in_paid/bank-payments", paid), 403, "forbidden")
	w.want(w.call(boss, "POST", list+"/in_paid/bank-payments", `{"amount":"one","reference":"T 1","reason":"x"}`), 422,
		"validation_failed")
	w.want(w.call(boss, "POST", list+"/in_paid/bank-payments", `{"amount":"1.00","reference":"","reason":"x"}`), 422,
		"validation_failed")
	w.want(w.call(boss, "POST", list+"/in_none/bank-payments", paid), 404, "not_found")
	w.want(w.call(boss, "POST", list+"/in_paid/bank-payments", paid), 409, "conflict") // no one disputed it
	w.lose(of, "in_paid")
	w.want(w.call(boss, "POST", list+"/in_paid/bank-payments", `{"amount":"10.01","reference":"T 1","reason":"x"}`), 422,
		"validation_failed")
	for range 2 { // the same transfer again, under another key
		if r := w.want(w.call(boss, "POST", list+"/in_paid/bank-payments", paid), 201,
			""); r.text("paid_by_bank") != "1.000000000" || r.text("lost_unpaid") != "9.000000000" ||
			r.text("lost") != "9.000000000" {
			t.Error(r.raw)
		}
	}
	if r := w.want(w.call(boss, "POST", list+"/in_open/write-off", why), 202, ""); r.text("write_off.state") != "asked" ||
		r.text("write_off.reason") != "insolvent" || r.text("total") != "10.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(boss, "GET", list, nil), 200, ""); len(r.json["items"].([]any)) != 2 ||
		!strings.Contains(r.raw, "insolvent") {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid/invoices", nil), 200, ""); strings.Contains(r.raw,
		"insolvent") {
		t.Error("the renter reads the operator's reason:", r.raw)
	}
}

// A refund of an invoice that was made at Stripe holds hosts' earnings back, until a platform operator lets them have
// them.
func TestReleaseRefund(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, boss := w.user("ada"), w.boss("ann")
	org := w.want(w.call(renter, "GET", "/api/v1/me", nil), 200, "").text("org.id")
	of, err := id.Parse[id.Org](org)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Pool.Exec(t.Context(), `INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency,
		reason, state, paid_at) VALUES ('re_1', $1, 'in_1', 'refund', 10000000000, 0, 'USD', 'given back at Stripe', 'open',
		now())`, of); err != nil {
		t.Fatal(err)
	}
	path, why := "/api/v1/admin/refunds/re_1/release", `{"reason":"our fault"}`
	w.want(w.call(renter, "POST", path, why), 403, "forbidden")
	w.want(w.call(boss, "POST", path, `{"reason":""}`), 422, "validation_failed")
	w.want(w.call(boss, "POST", "/api/v1/admin/refunds/re_none/release", why), 404, "not_found")
	if r := w.want(w.call(boss, "GET", "/api/v1/admin/orgs/"+org, nil), 200, ""); !strings.Contains(r.raw,
		`"invoice_id":"in_1"`) || !strings.Contains(r.raw, `"kind":"refund"`) {
		t.Error(r.raw)
	}
	w.want(w.call(boss, "POST", path, why), 200, "")
	w.want(w.call(boss, "POST", path, why), 409, "conflict")
}
