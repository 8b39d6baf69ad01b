package sandbox

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// talk is a caller of a watched server: every answer is held to Stripe's description.
type talk struct {
	t   *testing.T
	s   *Server
	srv *httptest.Server
	key int
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	o, err := published()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{WebhookSecret: "w", PublicURL: "http://pay.test"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(watched(t, o, s))
	t.Cleanup(srv.Close)
	return &talk{t: t, s: s, srv: srv}
}

// do makes one call; pairs are form fields. It returns the object's id.
func (k *talk) do(method, path string, want int, pairs ...string) (id string) {
	k.t.Helper()
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	target, body := k.srv.URL+path, io.Reader(strings.NewReader(form.Encode()))
	if method == http.MethodGet {
		target, body = target+"?"+form.Encode(), nil
	}
	r, err := http.NewRequestWithContext(k.t.Context(), method, target, body)
	if err != nil {
		k.t.Fatal(err)
	}
	k.key++
	r.Header.Set("Authorization", "Bearer sk_test")
	r.Header.Set("Stripe-Version", APIVersion)
	r.Header.Set("Idempotency-Key", newID("key"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := k.srv.Client().Do(r)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		k.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, b, err)
	}
	var v struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		k.t.Fatal(err)
	}
	return v.ID
}

// Every kind of answer and event has the fields, types and values of Stripe's published OpenAPI description.
func TestConform_Answers(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	get, post := http.MethodGet, http.MethodPost
	cus := k.do(post, "/v1/customers", 200, "name", "n", "email", "a@b.c", "metadata[org]", "org_1")
	k.do(get, "/v1/customers/"+cus, 200)
	k.do(get, "/v1/customers/cus_none", 404)

	seti := k.do(post, "/v1/setup_intents", 200, "customer", cus, "confirm", "true", "payment_method", "pm_card_visa")
	k.do(get, "/v1/setup_intents/"+seti, 200, "expand[0]", "payment_method")
	k.do(post, "/v1/setup_intents", 402, "customer", cus, "confirm", "true", "payment_method",
		"pm_card_visa_chargeDeclined")
	cs := k.do(post, "/v1/checkout/sessions", 200, "mode", "setup", "customer", cus, "success_url", "http://m/ok",
		"cancel_url", "http://m/no")
	if !k.s.Checkout.Pay(cs, "pm_card_mastercard") {
		t.Fatal("the card was not saved")
	}
	k.do(get, "/v1/checkout/sessions/"+cs, 200)
	k.do(get, "/v1/customers/"+cus+"/payment_methods", 200)
	pm := k.s.store.Methods.Order[0]
	k.do(get, "/v1/payment_methods/"+pm, 200)

	pay := func(want int, amount, method string, more ...string) string {
		t.Helper()
		return k.do(post, "/v1/payment_intents", want, append([]string{"amount", amount, "currency", "eur", "customer", cus,
			"payment_method", method,
			"confirm", "true", "expand[0]", "latest_charge"}, more...)...)
	}
	good := pay(200, "1000", pm)
	k.do(get, "/v1/payment_intents/"+good, 200, "expand[0]", "latest_charge", "expand[1]", "payment_method")
	k.do(get, "/v1/payment_intents", 200, "customer", cus)
	k.do(get, "/v1/charges/"+k.s.store.Charges.Order[0], 200)
	for _, bad := range []string{"pm_card_visa_chargeDeclined", "pm_card_chargeDeclinedExpiredCard",
		"pm_card_authenticationRequired"} {
		pay(402, "1000", bad, "off_session", "true")
	}
	pay(400, "1", pm)
	asks := pay(200, "1000", "pm_card_authenticationRequired", "return_url", "http://m/back")
	k.do(get, "/v1/payment_intents/"+asks, 200)
	if !k.s.Payments.Authenticate(asks, true) || k.s.Payments.Authenticate(asks, true) {
		t.Fatal("a bank asks once")
	}
	left := pay(200, "1000", "pm_card_authenticationRequired", "return_url", "http://m/back")
	k.do(post, "/v1/payment_intents/"+left+"/cancel", 200)
	k.do(post, "/v1/payment_intents/"+left+"/cancel", 400)
	slow := pay(200, "1000", "pm_slow")
	k.s.Payments.Finish(slow, false)

	re := k.do(post, "/v1/refunds", 200, "payment_intent", good, "amount", "400")
	k.do(get, "/v1/refunds/"+re, 200)
	k.do(get, "/v1/refunds", 200, "payment_intent", good)
	k.do(post, "/v1/refunds", 400, "payment_intent", good, "amount", "601")
	k.s.Refunds.Fail(re)
	dp := k.s.Disputes.Open(good, 1000)
	k.do(get, "/v1/disputes/"+dp, 200)
	k.do(post, "/v1/refunds", 400, "payment_intent", good)
	k.s.Disputes.Decide(dp, true)
	k.do(get, "/v1/disputes", 200, "payment_intent", good)
	k.do(get, "/v1/disputes/"+dp, 200)

	cs = k.do(post, "/v1/checkout/sessions", 200, "mode", "payment", "customer", cus, "success_url", "http://m/ok",
		"cancel_url", "http://m/no",
		"line_items[0][price_data][unit_amount]", "700", "line_items[0][price_data][currency]", "eur",
		"payment_intent_data[setup_future_usage]", "off_session")
	if k.s.Checkout.Pay(cs, "pm_card_visa_chargeDeclined") || !k.s.Checkout.Pay(cs, "pm_card_authenticationRequired") {
		t.Fatal("the payer may try another card")
	}
	k.do(get, "/v1/checkout/sessions/"+cs, 200)
	k.do(post, "/v1/payment_methods/"+pm+"/detach", 200)
	k.do(get, "/v1/balance", 200)
	k.do(get, "/v1/balance_transactions", 200, "limit", "100")
	k.do(get, "/v1/balance_transactions", 200, "limit", "100", "expand[0]", "data.source")
	k.do(get, "/v1/balance_transactions/"+k.s.store.Balance.Order[0], 200)

	o, err := published()
	if err != nil {
		t.Fatal(err)
	}
	ds := k.s.Webhooks.Deliveries()
	if len(ds) < 20 {
		t.Fatal(len(ds))
	}
	o.eventsAsPublished(t, ds)
}

// What the balance holds is what came in less what went out and the fees.
func TestBalance_AddsUp(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	pi := k.do(http.MethodPost, "/v1/payment_intents", 200, "amount", "10000", "currency", "eur", "payment_method",
		"pm_card_visa", "confirm", "true")
	want := 10000 - feeOf(10000)
	k.do(http.MethodPost, "/v1/refunds", 200, "payment_intent", pi, "amount", "2500")
	want -= 2500
	k.s.Refunds.Fail(k.s.Refunds.IDs()[0])
	want += 2500
	dp := k.s.Disputes.Open(pi, 10000)
	want -= 10000 + disputeFee
	k.s.Disputes.Decide(dp, true)
	want += 10000
	if got := k.s.Balance.Cents("eur"); got != want {
		t.Fatal(got, want)
	}
}

// A check that notices nothing would prove nothing.
func TestConform_CheckDetects(t *testing.T) {
	t.Parallel()
	o, err := published()
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"id":"cus_1","object":"customer","livemode":false}`:                              ".created: missing",
		`{"id":"cus_1","object":"customer","livemode":false,"created":"x"}`:                "not an integer",
		`{"id":"cus_1","object":"account","livemode":false,"created":1}`:                   "is none of",
		`{"id":"cus_1","object":"customer","livemode":false,"created":1,"purse":1}`:        "no such field",
		`{"id":null,"object":"customer","livemode":false,"created":1}`:                     "null",
		`{"id":"cus_1","object":"customer","livemode":0,"created":1,"metadata":{"a":"b"}}`: "not a boolean",
	} {
		bad := o.checkAnswer(http.MethodGet, "/v1/customers/cus_1", 200, []byte(body))
		if !strings.Contains(strings.Join(bad, "; "), want) {
			t.Errorf("%s: %v, want %q", body, bad, want)
		}
	}
}
