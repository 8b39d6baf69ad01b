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

// A platform operator finds an organisation, sees all about it, and what they did is in the trail.
func TestAdmin_Overview(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator, boss := w.user("olga"), w.boss("ann")
	const a = "/api/v1/admin/"
	org := w.want(w.call(operator, "GET", "/api/v1/me", nil), 200, "").text("org.id")
	for _, path := range []string{
		"attention", "totals", "orgs", "orgs/" + org, "operators", "audit-events", "promo-redemptions",
		"payout-run", "sending", "payouts", "payout-reviews"} {
		w.want(w.call(operator, "GET", a+path, nil), 403, "forbidden")
		w.want(w.call(boss, "GET", a+path, nil), 200, "")
	}
	w.want(w.call(operator, "POST", a+"payout-run", `{"reason":"mine"}`), 403, "forbidden")
	w.want(w.call(operator, "PUT", a+"sending", `{"paused":true,"reason":"mine"}`), 403, "forbidden")

	found := func(path string, want int) (r reply) {
		t.Helper()
		if r = w.want(w.call(boss, "GET", a+path, nil), 200, ""); len(r.list("items")) != want {
			t.Errorf("%s: %s", path, r.raw)
		}
		return r
	}
	found("orgs", 2)
	found("orgs?limit=1", 1)
	next := w.want(w.call(boss, "GET", a+"orgs?limit=1", nil), 200, "").text("next")
	if r := found("orgs?limit=1&after="+next, 1); r.json["next"] != nil {
		t.Error(r.raw)
	}
	for path, want := range map[string]int{
		"orgs?q=olga%40":                      1,
		"orgs?q=" + org:                       1,
		"orgs?q=" + id.New[id.Org]().String(): 0,
		"orgs?q=nobody":                       0,
		"operators?q=olga":                    0,
	} {
		found(path, want)
	}
	w.want(w.call(operator, "POST", "/api/v1/payouts/account", `{"country":"DE"}`), 201, "")
	found("operators?q=olga", 1)
	w.want(w.call(boss, "GET", a+"orgs?after=x", nil), 422, "validation_failed")
	w.want(w.call(boss, "GET", a+"orgs/"+id.New[id.Org]().String(), nil), 404, "not_found")
	w.want(w.call(boss, "GET", a+"orgs/x", nil), 404, "not_found")

	w.want(w.call(boss, "PATCH", a+"operators/"+org, `{"fee_ppm":90000,"reason":"a large fleet"}`), 200, "")
	r := w.want(w.call(boss, "GET", a+"orgs/"+org, nil), 200, "")
	if r.json["fee_ppm"] != 90000.0 || r.json["legal"] != nil || len(r.list("members")) != 1 ||
		r.text("account.state") != "incomplete" || r.text("earnings.payable") != "0.000000000" {
		t.Error(r.raw)
	}
	found("audit-events?action=operator&org_id="+org, 1)
	if r := found("audit-events?q=large+fleet", 1); r.list("items")[0].(map[string]any)["email"] != "ann@example.com" {
		t.Error(r.raw)
	}
	w.want(w.call(boss, "GET", a+"audit-events?org_id=x", nil), 422, "validation_failed")

	w.want(w.call(boss, "POST", a+"promo-codes", `{"code":"welcome-2027","amount":"5.00","max_uses":3}`), 422,
		"validation_failed")
	if r := w.call(boss, "POST", a+"promo-codes",
		`{"code":"welcome-2027","amount":"5.00","max_uses":3,"reason":"a fair"}`); r.StatusCode != 201 {
		t.Fatal(r.raw)
	}
	w.want(w.call(operator, "POST", "/api/v1/billing/promo", `{"code":"welcome-2027"}`), 201, "")
	if r := found("promo-redemptions?org_id="+org, 1); r.list("items")[0].(map[string]any)["amount"] != "5.000000000" {
		t.Error(r.raw)
	}
	found("promo-redemptions?code=other-code", 0)
	w.want(w.call(boss, "POST", a+"promo-codes/welcome-2027/disable", `{}`), 422, "validation_failed")
	if r := w.call(boss, "POST", a+"promo-codes/welcome-2027/disable",
		`{"reason":"posted in public"}`); r.StatusCode != 200 {
		t.Error(r.raw)
	}
}

// A run by REST pays once under one key.
func TestARunOfPayouts(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator, renter, boss := w.user("olga"), w.user("ada"), w.boss("ann")
	const path = "/api/v1/admin/payout-run"
	w.fund(renter, "500.00")
	w.want(w.call(operator, "POST", "/api/v1/payouts/account", `{"country":"DE"}`), 201, "")
	w.stripe.Accounts.Onboard(w.stripe.Accounts.IDs()[0])
	for _, d := range w.stripe.Webhooks.Deliveries() {
		w.want(w.call("", "POST", "/stripe/webhook", string(d.Payload), "Stripe-Signature", d.Signature), 200, "")
	}
	if _, err := w.in.Process(t.Context()); err != nil {
		t.Fatal(err)
	}
	orgOf := func(token string) id.Org {
		o, err := id.Parse[id.Org](w.want(w.call(token, "GET", "/api/v1/me", nil), 200, "").text("org.id"))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	host, payer := orgOf(operator), orgOf(renter)
	earn := func(key string) {
		t.Helper()
		if err := w.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind: "topup",
				Key:  key,
				Transfers: []ledger.Transfer{{
					Debit:  ledger.Wallet(payer, "USD"),
					Credit: ledger.HostPending(host, "USD"),
					Amount: 42 * money.Unit,
				}},
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := payout.Mature(t.Context(), w.db, -time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	earn("a")
	if r := w.want(w.call(boss, "GET", path, nil), 200,
		""); r.list("items")[0].(map[string]any)["amount"] != "42.000000000" {
		t.Error(r.raw)
	}
	w.want(w.call(boss, "POST", path, `{"reason":""}`), 422, "validation_failed")
	for i := range 2 {
		if i == 1 {
			earn("b") // what is earned since is not paid by the same call said again
		}
		if r := w.want(w.call(boss, "POST", path, `{"reason":"asked for"}`, "Idempotency-Key", "r1"), 201,
			""); len(r.list("items")) != 1 {
			t.Error(r.raw)
		}
	}
	if n, cents := w.stripe.Transfers.Total(""); n != 1 || cents != 4200 {
		t.Errorf("%d transfers, %d cents", n, cents)
	}
}
