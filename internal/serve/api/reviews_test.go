package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func TestPayoutReviews(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator, renter, boss := w.user("olga"), w.user("ada"), w.boss("ann")
	org := func(token string) id.Org {
		o, err := id.Parse[id.Org](w.want(w.call(token, "GET", "/api/v1/me", nil), 200, "").text("org.id"))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	host, payer := org(operator), org(renter)
	w.fund(renter, "500.00")
	earn := func(key string, n money.Nano) {
		t.Helper()
		if err := w.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: key, Transfers: []ledger.Transfer{
				{Debit: ledger.Wallet(payer, "USD"), Credit: ledger.HostPending(host, "USD"), Amount: n}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := payout.Mature(t.Context(), w.db, -time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.db.Pool.Exec(t.Context(), "INSERT INTO membership (org_id, user_id, role) SELECT $1, user_id, "+
		"'member' FROM membership WHERE org_id = $2", payer, host); err != nil {
		t.Fatal(err)
	}
	earn("first", 42*money.Unit)
	balance := func(inReview, payable string) {
		t.Helper()
		if r := w.want(w.call(operator, "GET", "/api/v1/payouts/balance", nil), 200, ""); r.text("in_review") != inReview ||
			r.text("payable") != payable {
			t.Error(r.raw)
		}
	}
	balance("42.000000000", "0.000000000")

	const p = "/api/v1/admin/payout-reviews"
	w.want(w.call(operator, "GET", p, nil), 403, "forbidden")
	r := w.want(w.call(boss, "GET", p, nil), 200, "")
	if len(r.list("items")) != 1 {
		t.Fatal(r.raw)
	}
	one := r.list("items")[0].(map[string]any)
	if one["host_org_id"] != host.String() || one["renter_org_id"] != payer.String() ||
		one["in_review"] != "42.000000000" || one["reasons"].([]any)[0] != "member" {
		t.Errorf("%v", one)
	}
	at := p + "/" + one["id"].(string)
	for _, do := range []string{"/release", "/refuse"} {
		w.want(w.call(operator, "POST", at+do, `{"reason":"mine"}`), 403, "forbidden")
		w.want(w.call(boss, "POST", at+do, `{"reason":""}`), 422, "validation_failed")
		w.want(w.call(boss, "POST", p+"/x"+do, `{"reason":"y"}`), 404, "not_found")
		w.want(w.call(boss, "POST", p+"/"+id.New[id.PayoutReview]().String()+do, `{"reason":"y"}`), 404, "not_found")
	}
	for range 2 {
		if r := w.want(w.call(boss, "POST", at+"/release", `{"reason":"a subsidiary"}`, "Idempotency-Key", "r1"), 200,
			""); r.text("released") != "42.000000000" || r.text("in_review") != "0.000000000" {
			t.Error(r.raw)
		}
	}
	w.want(w.call(boss, "POST", at+"/refuse", `{"reason":"too late"}`), 409, "conflict")
	earn("second", 8*money.Unit) // and matures what was released
	balance("8.000000000", "42.000000000")
	for range 2 {
		if r := w.want(w.call(boss, "POST", at+"/refuse", `{"reason":"a stolen card"}`, "Idempotency-Key", "r2"), 200,
			""); r.text("refused") != "8.000000000" {
			t.Error(r.raw)
		}
	}
	balance("0.000000000", "42.000000000")
	earn("third", money.Unit)
	balance("1.000000000", "42.000000000")
}
