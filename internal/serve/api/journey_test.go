package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// sell enrols a host of n GPUs over REST and puts it on the market, as an operator and an agent do.
func (w *world) sell(operator string, n int, price string) id.Host {
	w.t.Helper()
	e := w.want(w.call(operator, "POST", "/api/v1/host-enrollments", map[string]any{"region": "eu-test"}), 201, "")
	agent := fleettest.NewAgent(w.t)
	inv := fleettest.Inventory(n)
	req := agent.Request(w.t, fleettest.Origin, e.text("token"), inv)
	err := w.db.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		h, err := host.Enroll(ctx, tx, fleettest.Policy, req)
		if err != nil {
			return err
		}
		agent.Host = h.ID
		return w.market.SyncOffers(ctx, tx, h.ID)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	fleettest.Activate(w.t, w.db, agent)
	w.want(w.call(operator, "PATCH", "/api/v1/hosts/"+agent.Host.String(), map[string]any{"price_per_gpu_hour": price}),
		200, "")
	return agent.Host
}

// fund pays into the wallet.
func (w *world) fund(token, amount string) {
	w.t.Helper()
	r := w.want(w.call(token, "POST", "/api/v1/billing/topups", map[string]any{"amount": amount}), 201, "")
	if r.text("state") != "succeeded" {
		w.t.Fatalf("top-up: %s", r.raw)
	}
}

const spec = `{"name":"train","nodes":2,"gpus_per_node":4,"image":"registry.test/job:1","command":["train"],"env":{"KEY":"s3cret"}}`

func TestRenterJourney(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator, renter, stranger := w.user("op"), w.user("ada"), w.user("eve")
	h := w.sell(operator, 8, "2.00")
	w.sell(operator, 8, "3.00")

	offers := w.want(w.call(renter, "GET", "/api/v1/offers?q="+"gpu_model%3DH100+vram_gb%3E%3D70", nil), 200, "")
	if len(offers.list("items")) != 2 || offers.list("items")[0].(map[string]any)["price_per_gpu_hour"] != "2.000000" {
		t.Errorf("offers: %s", offers.raw)
	}
	bad := w.want(w.call(renter, "GET", "/api/v1/offers?q=gpu_model%3D%3DH100", nil), 422, "validation_failed")
	if len(bad.list("errors")) == 0 {
		t.Errorf("no position: %s", bad.raw)
	}

	w.want(w.call(renter, "POST", "/api/v1/quotes", spec), 402, "insufficient_funds")
	w.want(w.call(renter, "POST", "/api/v1/clusters", spec), 402, "insufficient_funds")
	w.fund(renter, "100.00")
	tooMuch := w.want(w.call(renter, "POST", "/api/v1/clusters", `{"nodes":3,"gpus_per_node":8,"image":"x/y:1"}`), 409,
		"no_capacity")
	if len(tooMuch.list("explain")) == 0 {
		t.Errorf("nothing explained: %s", tooMuch.raw)
	}

	quote := w.want(w.call(renter, "POST", "/api/v1/quotes", spec), 201, "")
	if len(quote.list("nodes")) != 2 || quote.text("price_per_second") == "" || strings.Contains(quote.raw, "s3cret") {
		t.Errorf("quote: %s", quote.raw)
	}
	path := "/api/v1/quotes/" + quote.text("id")
	w.want(w.call(renter, "GET", path, nil), 200, "")
	w.want(w.call(stranger, "GET", path, nil), 404, "not_found")
	w.want(w.call(stranger, "DELETE", path, nil), 404, "not_found")
	w.want(w.call(renter, "POST", "/api/v1/clusters", map[string]any{
		"quote_id": quote.text("id"),
		"nodes":    3,
	}), 422, "validation_failed")
	w.want(w.call(stranger, "POST", "/api/v1/clusters", map[string]any{"quote_id": quote.text("id")}), 404, "not_found")
	w.want(w.call(renter, "POST", "/api/v1/clusters", map[string]any{"quote_id": "q_nonsense"}), 422, "validation_failed")

	rent := func() reply {
		return w.call(renter, "POST", "/api/v1/clusters", fmt.Sprintf(`{"quote_id":%q,"name":"mine"}`, quote.text("id")),
			"Idempotency-Key", "rent-1")
	}
	made := w.want(rent(), 202, "")
	if again := w.want(rent(), 202, ""); again.text("id") != made.text("id") {
		t.Errorf("rented twice: %s, %s", made.text("id"), again.text("id"))
	}
	if made.text("state") != "provisioning" || made.text("name") != "mine" || len(made.list("nodes")) != 2 ||
		strings.Contains(made.raw, "s3cret") {
		t.Errorf("cluster: %s", made.raw)
	}
	w.seeCluster(renter, stranger, made)
	w.endCluster(renter, made)

	if r := w.want(w.call(renter, "GET", "/api/v1/billing/balance", nil), 200, ""); r.text("currency") != "USD" ||
		r.text("available") == "" {
		t.Errorf("balance: %s", r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/transactions?limit=1", nil), 200,
		""); len(r.list("items")) != 1 || r.text("next") == "" {
		t.Errorf("transactions: %s", r.raw)
	}
	w.want(w.call(operator, "GET", "/api/v1/hosts/"+h.String()+"/earnings", nil), 200, "")
	w.want(w.call(renter, "GET", "/api/v1/hosts/"+h.String()+"/earnings", nil), 404, "not_found")
	w.want(w.call(operator, "GET", "/api/v1/hosts/"+h.String()+"/traffic", nil), 200, "")
	w.want(w.call(renter, "GET", "/api/v1/hosts/"+h.String()+"/traffic", nil), 404, "not_found")
	if r := w.want(w.call(operator, "GET", "/api/v1/payouts/balance", nil), 200, ""); r.text("payable") != "0.000000000" ||
		r.json["holdback_seconds"] != float64(7*86400) {
		t.Errorf("payout balance: %s", r.raw)
	}
	w.want(w.call(w.token(operator, "billing"), "GET", "/api/v1/payouts/balance", nil), 403, "forbidden")
}

// seeCluster looks at a cluster from every side.
func (w *world) seeCluster(renter, stranger string, made reply) {
	w.t.Helper()
	path := "/api/v1/clusters/" + made.text("id")
	for _, p := range []string{"", "/events", "/usage", "/metrics", "/logs"} {
		w.want(w.call(stranger, "GET", path+p, nil), 404, "not_found")
		if p != "/logs" {
			w.want(w.call(renter, "GET", path+p, nil), 200, "")
		}
	}
	w.want(w.call(stranger, "DELETE", path, nil), 404, "not_found")
	w.want(w.call(stranger, "POST", path+"/actions", `{"action":"release"}`), 404, "not_found")
	reader := w.token(renter, "read")
	w.want(w.call(reader, "GET", path, nil), 200, "")
	w.want(w.call(reader, "DELETE", path, nil), 403, "forbidden")
	if r := w.want(w.call(renter, "GET", path+"?wait=running&timeout=0", nil), 200,
		""); r.text("state") != "provisioning" {
		w.t.Errorf("%s", r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/clusters?state=provisioning", nil), 200, ""); len(r.list("items")) != 1 {
		w.t.Errorf("%s", r.raw)
	}
	for _, q := range []string{"?wait=nonsense", "?wait=running&timeout=301", "/metrics?from=yesterday",
		"/metrics?from=2020-01-01T00:00:00Z&to=2021-01-01T00:00:00Z", "/logs?node=2", "/logs?tail=x", "/events?after=x"} {
		w.want(w.call(renter, "GET", path+q, nil), 422, "validation_failed")
	}
	if r := w.want(w.call(renter, "GET", path+"/metrics", nil), 200, ""); len(r.list("gpus")) != 8 {
		w.t.Errorf("metrics: %s", r.raw)
	}
}

// endCluster releases a cluster, twice.
func (w *world) endCluster(renter string, made reply) {
	w.t.Helper()
	path := "/api/v1/clusters/" + made.text("id")
	w.want(w.call(renter, "POST", path+"/actions", `{"action":"restart"}`), 409, "conflict")
	w.want(w.call(renter, "POST", path+"/actions", `{"action":"nonsense"}`), 422, "validation_failed")
	if r := w.want(w.call(renter, "POST", path+"/actions", `{"action":"release"}`), 200,
		""); r.text("state") != "releasing" || r.text("reason") != "released_by_user" {
		w.t.Errorf("%s", r.raw)
	}
	w.want(w.call(renter, "DELETE", path, nil), 200, "")
	if r := w.want(w.call(renter, "GET", path+"?wait=running&timeout=60", nil), 200, ""); r.text("state") != "releasing" {
		w.t.Errorf("a wait for what cannot come: %s", r.raw)
	}
	if r := w.want(w.call(renter, "GET", path+"/usage", nil), 200, ""); r.text("cost") != "0.000000000" {
		w.t.Errorf("charged for a start that never ran: %s", r.raw)
	}
	events := w.want(w.call(renter, "GET", path+"/events?limit=1", nil), 200, "")
	if len(events.list("items")) != 1 || events.text("next") == "" {
		w.t.Errorf("%s", events.raw)
	}
}

func TestNobodyRentsFromThemselves(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator := w.user("op")
	w.sell(operator, 8, "2.00")
	w.fund(operator, "10.00")
	for _, p := range []string{"/api/v1/clusters", "/api/v1/quotes"} {
		r := w.want(w.call(operator, "POST", p, `{"image":"x/y:1"}`), 409, "no_capacity")
		if !strings.Contains(r.raw, "not your own: an organisation cannot rent from itself") {
			t.Errorf("%s: %s", p, r.raw)
		}
	}
}

func TestRentingRefusesForeignSSHKeys(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("ada")
	w.sell(w.user("op"), 8, "2.00")
	w.fund(renter, "10.00")
	foreign := w.want(w.call(w.user("eve"), "POST", "/api/v1/ssh-keys",
		`{"public_key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ0UxE5kWyYxcTjF0BzvN4xEGGAhnnuTX5ySDyX/iNQ"}`), 201, "")
	for _, p := range []string{"/api/v1/clusters", "/api/v1/quotes"} {
		r := w.want(w.call(renter, "POST", p, map[string]any{
			"image":       "x/y:1",
			"ssh_key_ids": []string{foreign.text("id")},
		}), 422, "validation_failed")
		if !strings.Contains(r.raw, "ssh_key_ids[0]") {
			t.Errorf("%s", r.raw)
		}
	}
}

func TestHostsOverREST(t *testing.T) {
	t.Parallel()
	w := open(t, func(c *api.Config, _ *account.Config) { c.AgentURL = "https://agents.muster.test" })
	operator, stranger := w.user("op"), w.user("eve")
	e := w.want(w.call(operator, "POST", "/api/v1/host-enrollments", `{"region":"eu-test","name":"box","fabric":"rack"}`,
		"Idempotency-Key", "e1"), 201, "")
	if !strings.Contains(e.text("command"), "muster-agent enroll --url https://agents.muster.test") ||
		!strings.Contains(e.text("command"), e.text("token")) {
		t.Errorf("command %q", e.text("command"))
	}
	if again := w.call(operator, "POST", "/api/v1/host-enrollments", `{"region":"eu-test","name":"box","fabric":"rack"}`,
		"Idempotency-Key", "e1"); again.raw != e.raw {
		t.Errorf("another token: %s", again.raw)
	}
	w.want(w.call(operator, "POST", "/api/v1/host-enrollments", `{}`), 422, "validation_failed")
	w.want(w.call(w.token(operator, "read", "clusters", "billing"), "POST", "/api/v1/host-enrollments",
		`{"region":"eu-test"}`), 403, "forbidden")

	h := w.sell(operator, 4, "1.50").String()
	path := "/api/v1/hosts/" + h
	show := w.want(w.call(operator, "GET", path, nil), 200, "")
	if len(show.list("gpus")) != 4 || show.json["selling"] != true || show.text("state") != "active" {
		t.Errorf("%s", show.raw)
	}
	if r := w.want(w.call(operator, "GET", "/api/v1/hosts", nil), 200, ""); len(r.list("items")) != 1 {
		t.Errorf("%s", r.raw)
	}
	if r := w.want(w.call(stranger, "GET", "/api/v1/hosts", nil), 200, ""); len(r.list("items")) != 0 {
		t.Errorf("a stranger sees %s", r.raw)
	}
	w.want(w.call(stranger, "GET", path, nil), 404, "not_found")
	w.want(w.call(stranger, "PATCH", path, `{"price_per_gpu_hour":"0.01"}`), 404, "not_found")
	w.want(w.call(stranger, "POST", path+"/actions", `{"action":"retire"}`), 404, "not_found")
	for _, body := range []string{`{"price_per_gpu_hour":1.5}`, `{"price_per_gpu_hour":"-1"}`,
		`{"price_per_gpu_hour":"1.0000001"}`, `{"min_gpus":0}`, `{"price":"1"}`, `{"price_per_gpu_hour":"1","unlist":true}`} {
		w.want(w.call(operator, "PATCH", path, body), 422, "validation_failed")
	}
	if r := w.want(w.call(operator, "PATCH", path, `{"name":"better","min_gpus":2,"price_per_gpu_hour":"1.75"}`), 200,
		""); r.text("name") != "better" || !strings.Contains(r.raw, "1.750000") {
		t.Errorf("%s", r.raw)
	}
	if r := w.want(w.call(operator, "PATCH", path, `{"unlist":true}`), 200, ""); r.json["selling"] != false ||
		r.text("not_selling") == "" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(operator, "POST", path+"/actions", `{"action":"dance"}`), 422, "validation_failed")
	for _, step := range [][2]string{{"drain", "draining"}, {"resume", "active"}, {"drain", "draining"},
		{"retire", "retired"}} {
		if r := w.want(w.call(operator, "POST", path+"/actions", fmt.Sprintf(`{"action":%q}`, step[0])), 200,
			""); r.text("state") != step[1] {
			t.Errorf("%s: %s", step[0], r.raw)
		}
	}
}

func TestTopUpsAndWebhook(t *testing.T) {
	t.Parallel()
	w := open(t)
	payer, stranger := w.user("ada"), w.user("eve")
	for _, body := range []string{`{"amount":"0"}`, `{"amount":"-5"}`, `{"amount":"1.001"}`, `{"amount":"1e3"}`,
		`{"amount":"99999999999999"}`, `{"amount":25}`, `{"amount":"25","currency":"EUR"}`} {
		w.want(w.call(payer, "POST", "/api/v1/billing/topups", body), 422, "validation_failed")
	}
	w.want(w.call(w.token(payer, "read"), "POST", "/api/v1/billing/topups", `{"amount":"5"}`), 403, "forbidden")
	first := w.want(w.call(payer, "POST", "/api/v1/billing/topups", `{"amount":"25.00"}`, "Idempotency-Key", "t1"), 201,
		"")
	again := w.want(w.call(payer, "POST", "/api/v1/billing/topups", `{"amount":"25.00"}`, "Idempotency-Key", "t1"), 201,
		"")
	if again.text("id") != first.text("id") {
		t.Errorf("paid twice: %s %s", first.raw, again.raw)
	}
	if r := w.want(w.call(payer, "GET", "/api/v1/billing/balance", nil), 200, ""); r.text("available") != "25.000000000" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(payer, "GET", "/api/v1/billing/topups/"+first.text("id"), nil), 200, "")
	w.want(w.call(stranger, "GET", "/api/v1/billing/topups/"+first.text("id"), nil), 404, "not_found")
	if r := w.want(w.call(payer, "GET", "/api/v1/billing/topups", nil), 200, ""); len(r.list("items")) != 1 {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call("", "POST", "/stripe/webhook", `{"id":"evt_1"}`, "Stripe-Signature", "t=1,v1=00"), 422,
		"validation_failed")
	w.want(w.call("", "POST", "/stripe/webhook", strings.Repeat("x", 600_000), "Stripe-Signature", "t=1,v1=00"), 413,
		"too_large")
}

func TestRefundsAndCodes(t *testing.T) {
	t.Parallel()
	w := open(t)
	payer := w.user("ada")
	w.fund(payer, "30.00")
	for _, body := range []string{`{"amount":"0"}`, `{"amount":"-5"}`, `{"amount":"1.001"}`, `{"amount":"99999999999"}`,
		`{"amount":"5","currency":"EUR"}`} {
		w.want(w.call(payer, "POST", "/api/v1/billing/refunds", body), 422, "validation_failed")
	}
	w.want(w.call(payer, "POST", "/api/v1/billing/refunds", `{"amount":"30.01"}`), 409, "conflict")
	w.want(w.call(w.token(payer, "read"), "POST", "/api/v1/billing/refunds", `{"amount":"5"}`), 403, "forbidden")
	for range 2 {
		w.want(w.call(payer, "POST", "/api/v1/billing/refunds", `{"amount":"12.50"}`, "Idempotency-Key", "r1"), 201, "")
	}
	if r := w.want(w.call(payer, "GET", "/api/v1/billing/refunds", nil), 200, ""); len(r.list("items")) != 1 ||
		r.text("refundable") != "17.500000000" {
		t.Fatal(r.raw)
	}
	w.want(w.call(payer, "POST", "/api/v1/billing/promo", `{"code":"no-such-code"}`), 404, "not_found")
	for _, path := range []string{"promo-codes", "reconciliation", "books", "transactions?q=x", "frozen-leases",
		"quarantine"} {
		w.want(w.call(payer, "GET", "/api/v1/admin/"+path, nil), 403, "forbidden")
	}
	w.want(w.call(payer, "POST", "/api/v1/admin/promo-codes",
		`{"code":"for-myself","amount":"100","max_uses":1,"reason":"x"}`), 403, "forbidden")
	w.want(w.call(payer, "POST", "/api/v1/admin/promo-codes/OF-OTHERS/disable", `{"reason":"x"}`), 403, "forbidden")
}

func TestCards(t *testing.T) {
	t.Parallel()
	w := open(t)
	payer, stranger := w.user("ada"), w.user("eve")
	page := w.want(w.call(payer, "POST", "/api/v1/billing/cards", `{}`, "Idempotency-Key", "c1"), 201, "")
	if again := w.want(w.call(payer, "POST", "/api/v1/billing/cards", `{}`, "Idempotency-Key", "c1"), 201,
		""); again.text("id") != page.text("id") {
		t.Errorf("two pages: %s %s", page.raw, again.raw)
	}
	setup := "/api/v1/billing/card-setups/" + page.text("id")
	w.want(w.call(stranger, "GET", setup, nil), 404, "not_found")
	session := page.text("url")[strings.LastIndex(page.text("url"), "/")+1:]
	if !w.stripe.Checkout.Pay(session, "pm_card_authenticationRequired") {
		t.Fatal("the card was not saved")
	}
	if r := w.want(w.call(payer, "GET", setup, nil), 200, ""); r.text("state") != "succeeded" {
		t.Fatal(r.raw)
	}
	cards := w.want(w.call(payer, "GET", "/api/v1/billing/cards", nil), 200, "").list("items")
	if len(cards) != 1 {
		t.Fatal(cards)
	}
	id := cards[0].(map[string]any)["id"].(string)
	// The bank of this card asks; the answer says where.
	asked := w.want(w.call(payer, "POST", "/api/v1/billing/topups", `{"amount":"25.00","card_id":"`+id+`"}`), 201, "")
	if asked.text("state") != "pending" || asked.text("action_url") == "" {
		t.Fatal(asked.raw)
	}
	w.want(w.call(payer, "POST", "/api/v1/billing/topups", `{"amount":"25.00","card_id":"nonsense"}`), 422,
		"validation_failed")
	w.want(w.call(stranger, "POST", "/api/v1/billing/topups", `{"amount":"25.00","card_id":"`+id+`"}`), 404, "not_found")
	w.want(w.call(payer, "PATCH", "/api/v1/billing/cards/"+id, `{"default":true}`), 200, "")
	w.want(w.call(payer, "PATCH", "/api/v1/billing/cards/"+id, `{"default":false}`), 422, "validation_failed")
	w.want(w.call(stranger, "DELETE", "/api/v1/billing/cards/"+id, nil), 404, "not_found")
	w.want(w.call(payer, "DELETE", "/api/v1/billing/cards/"+id, nil), 204, "")
	w.want(w.call(payer, "DELETE", "/api/v1/billing/cards/"+id, nil), 404, "not_found")
}

func TestMoneyIsNeverAFloat(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("ada")
	w.fund(renter, "10.10")
	for _, p := range []string{"balance", "transactions", "topups"} {
		r := w.want(w.call(renter, "GET", "/api/v1/billing/"+p, nil), 200, "")
		var walk func(path string, v any)
		walk = func(path string, v any) {
			switch v := v.(type) {
			case map[string]any:
				for k, x := range v {
					walk(path+"."+k, x)
				}
			case []any:
				for _, x := range v {
					walk(path, x)
				}
			case float64:
				t.Errorf("%s is a number: %v", path, v)
			}
		}
		var v any
		if err := json.Unmarshal([]byte(r.raw), &v); err != nil {
			t.Fatal(err)
		}
		walk(p, v)
	}
}
