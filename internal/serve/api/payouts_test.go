package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// boss is a token of a platform operator.
func (w *world) boss(name string) string {
	w.t.Helper()
	token := w.user(name)
	for _, sql := range []string{
		"UPDATE app_user SET admin = true WHERE email = $1 || '@example.com'",
		"UPDATE api_token t SET scopes = t.scopes || '{admin}' FROM app_user u WHERE u.id = t.user_id AND u.email = $1 || " +
			"'@example.com'",
	} {
		if _, err := w.db.Pool.Exec(w.t.Context(), sql, name); err != nil {
			w.t.Fatal(err)
		}
	}
	return token
}

func TestPayouts(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator, renter, stranger, boss := w.user("olga"), w.user("ada"), w.user("eve"), w.boss("ann")
	const p = "/api/v1/payouts"
	w.fund(renter, "500.00")

	if r := w.want(w.call(operator, "GET", p+"/account", nil), 200, ""); r.text("state") != "none" ||
		r.json["next_at"] != nil {
		t.Error(r.raw)
	}
	for _, body := range []string{`{}`, `{"country":"Germany"}`, `{"country":"DE","iban":"x"}`} {
		w.want(w.call(operator, "POST", p+"/account", body), 422, "validation_failed")
	}
	w.want(w.call(w.token(operator, "hosts"), "POST", p+"/account", `{"country":"DE"}`), 403, "forbidden")
	for range 2 {
		if r := w.want(w.call(operator, "POST", p+"/account", `{"country":"DE"}`, "Idempotency-Key", "a1"), 201,
			""); r.text("url") == "" || r.text("account.state") != "incomplete" {
			t.Error(r.raw)
		}
	}
	if made := w.stripe.Accounts.IDs(); len(made) != 1 {
		t.Fatal(made)
	}
	org, err := id.Parse[id.Org](w.want(w.call(operator, "GET", "/api/v1/me", nil), 200, "").text("org.id"))
	if err != nil {
		t.Fatal(err)
	}
	payer, err := id.Parse[id.Org](w.want(w.call(renter, "GET", "/api/v1/me", nil), 200, "").text("org.id"))
	if err != nil {
		t.Fatal(err)
	}
	w.stripe.Accounts.Onboard(w.stripe.Accounts.IDs()[0])
	for _, d := range w.stripe.Webhooks.Deliveries() {
		w.want(w.call("", "POST", "/stripe/webhook", string(d.Payload), "Stripe-Signature", d.Signature), 200, "")
	}
	if _, err := w.in.Process(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.want(w.call(operator, "GET", p+"/account", nil), 200, ""); r.text("state") != "ready" {
		t.Error(r.raw)
	}
	if err := w.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "test", Transfers: []ledger.Transfer{
			{Debit: ledger.Wallet(payer, "USD"), Credit: ledger.HostPending(org, "USD"), Amount: 42 * money.Unit}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	pay := `{"org_id":"` + org.String() + `","reason":"asked by phone"}`
	w.want(w.call(operator, "POST", "/api/v1/admin/payouts", pay), 403, "forbidden")
	w.want(w.call(boss, "POST", "/api/v1/admin/payouts", pay), 409, "conflict") // in the holdback
	if n, err := payout.Mature(t.Context(), w.db, -time.Hour); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	w.want(w.call(boss, "POST", "/api/v1/admin/payouts", `{"org_id":"x","reason":"x"}`), 422, "validation_failed")
	for range 2 {
		if r := w.want(w.call(boss, "POST", "/api/v1/admin/payouts", pay, "Idempotency-Key", "p1"), 201,
			""); r.text("amount") != "42.000000000" || r.text("org_id") != org.String() {
			t.Error(r.raw)
		}
	}
	list := w.want(w.call(operator, "GET", p, nil), 200, "").list("items")
	if len(list) != 1 {
		t.Fatal(list)
	}
	one := list[0].(map[string]any)
	if one["state"] != "paid" || one["transfer"] != w.stripe.Transfers.IDs()[0] {
		t.Errorf("%v", one)
	}
	own := p + "/" + one["id"].(string)
	w.want(w.call(operator, "GET", own, nil), 200, "")
	w.want(w.call(stranger, "GET", own, nil), 404, "not_found")
	if r := w.want(w.call(operator, "GET", p+"/balance", nil), 200, ""); r.text("paid") != "42.000000000" ||
		r.text("payable") != "0.000000000" || r.text("minimum") != "10.000000000" {
		t.Error(r.raw)
	}

	w.want(w.call(operator, "GET", p+"/year.csv", nil), 422, "validation_failed")
	if r := w.want(w.call(operator, "GET", p+"/year.csv?year="+time.Now().UTC().Format("2006"), nil), 200,
		""); !strings.Contains(r.raw, "42.000000000,0.000000000,42.000000000") {
		t.Error(r.raw)
	}

	back := "/api/v1/admin/payouts/" + one["id"].(string) + "/reverse"
	w.want(w.call(operator, "POST", back, `{"reason":"mine"}`), 403, "forbidden")
	for _, body := range []string{`{"reason":""}`, `{"amount":"-1","reason":"x"}`, `{"amount":"0.001","reason":"x"}`,
		`{"amount":"42.01","reason":"x"}`} {
		w.want(w.call(boss, "POST", back, body), 422, "validation_failed")
	}
	w.stripe.Transfers.Reverse(one["transfer"].(string), 100) // by hand: Stripe has less than we know of
	w.want(w.call(boss, "POST", back, `{"reason":"sent twice"}`), 202, "")
	for _, path := range []string{own, "/api/v1/admin/payouts?org_id=" + org.String()} {
		r := w.want(w.call(map[bool]string{true: operator, false: boss}[path == own], "GET", path, nil), 200, "")
		if !strings.Contains(r.raw, `"reversal":{"state":"refused","amount":"42.000000000","failure":"`) {
			t.Error(r.raw)
		}
	}
	w.want(w.call(boss, "POST", back, `{"amount":"11.00","reason":"sent twice"}`), 202, "")
	if r := w.want(w.call(operator, "GET", own, nil), 200, ""); strings.Contains(r.raw, `"reversal"`) {
		t.Error(r.raw)
	}
	if r := w.want(w.call(operator, "GET", own, nil), 200, ""); r.text("reversed") != "12.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(operator, "GET", p+"/account", nil), 200, ""); r.text("stopped") != "sent twice" {
		t.Error(r.raw)
	}
	who := "/api/v1/admin/operators/" + org.String()
	w.want(w.call(operator, "PATCH", who, `{"payouts_stopped":false,"reason":"please"}`), 403, "forbidden")
	if r := w.want(w.call(boss, "PATCH", who, `{"payouts_stopped":false,"reason":"cleared up"}`), 200,
		""); r.text("account.stopped") != "" {
		t.Error(r.raw)
	}
	for _, body := range []string{`{"fee_ppm":-1,"reason":"x"}`, `{"fee_ppm":1000001,"reason":"x"}`,
		`{"fee_ppm":1,"reason":" "}`} {
		w.want(w.call(boss, "PATCH", who, body), 422, "validation_failed")
	}
	w.want(w.call(operator, "PATCH", who, `{"fee_ppm":0,"reason":"please"}`), 403, "forbidden")
	if r := w.want(w.call(boss, "PATCH", who, `{"fee_ppm":100000,"reason":"a volume deal"}`), 200,
		""); r.json["fee_ppm"] != float64(100_000) {
		t.Error(r.raw)
	}
	w.want(w.call(boss, "PATCH", "/api/v1/admin/operators/"+id.New[id.Org]().String(), `{"fee_ppm":1,"reason":"x"}`), 404,
		"not_found")
	if r := w.want(w.call(boss, "GET", "/api/v1/admin/payouts", nil), 200, ""); len(r.list("items")) != 1 {
		t.Error(r.raw)
	}
}
