package sandbox

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Meter events, subscriptions, invoices and what becomes of them are as Stripe describes them.
func TestConform_Billing(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	var at atomic.Int64
	at.Store(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).Unix())
	k.s.store.clock = func() time.Time { return time.Unix(at.Load(), 0) }
	get, post := http.MethodGet, http.MethodPost
	cus := k.do(post, "/v1/customers", 200, "email", "a@b.c")
	k.do(post, "/v1/customers/"+cus, 200, "invoice_settings[default_payment_method]", "pm_card_chargeCustomerFail")
	k.do(post, "/v1/customers/"+cus, 400, "invoice_settings[default_payment_method]", k.s.methods.named("pm_card_visa").ID)
	k.do(post, "/v1/customers/"+cus, 404, "invoice_settings[default_payment_method]", "pm_none")
	k.do(get, "/v1/customers/"+cus, 200)
	mtr := k.do(post, "/v1/billing/meters", 200, "event_name", "u", "display_name", "U", "default_aggregation[formula]",
		"sum")
	k.do(post, "/v1/products", 200, "id", "p", "name", "P")
	price := k.do(post, "/v1/prices", 200, "currency", "eur", "product", "p", "unit_amount_decimal", "0.0001",
		"recurring[interval]", "month", "recurring[usage_type]", "metered", "recurring[meter]", mtr)

	use := func(want int, value string, more ...string) {
		t.Helper()
		k.do(post, "/v1/billing/meter_events", want, append([]string{"event_name", "u", "payload[stripe_customer_id]", cus,
			"payload[value]", value}, more...)...)
	}
	sub := k.do(post, "/v1/subscriptions", 200, "customer", cus, "items[0][price]", price, "currency", "eur",
		"metadata[org]", "org_1")
	k.do(post, "/v1/subscriptions", 404, "customer", cus, "items[0][price]", "price_none")
	k.do(get, "/v1/subscriptions/"+sub, 200)
	k.do(get, "/v1/subscriptions", 200, "customer", cus)
	use(200, "5000000", "identifier", "a")
	use(400, "5000000", "identifier", "a")
	use(400, "1.5")
	use(400, "-1")
	use(200, "7", "identifier", "b")
	use(400, "1", "timestamp", fmt.Sprint(at.Load()+301))
	use(400, "1", "timestamp", fmt.Sprint(at.Load()-35*24*3600-1))
	k.do(post, "/v1/billing/meter_event_adjustments", 200, "event_name", "u", "type", "cancel", "cancel[identifier]", "b")
	k.do(post, "/v1/billing/meter_event_adjustments", 400, "event_name", "u", "type", "cancel", "cancel[identifier]",
		"none")
	span := []string{"customer", cus, "start_time", fmt.Sprint(at.Load()), "end_time", fmt.Sprint(at.Load() + 60)}
	k.do(get, "/v1/billing/meters/"+mtr+"/event_summaries", 200, span...)
	k.do(get, "/v1/billing/meters/"+mtr+"/event_summaries", 400, append(span, "end_time", "61")...)
	k.do(post, "/v1/invoiceitems", 200, "customer", cus, "amount", "-3", "currency", "eur", "description", "for the next")

	at.Store(time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC).Unix())
	k.s.Billing.Run()
	ids := k.s.Invoices.Of(cus)
	in := ids[len(ids)-1]
	k.do(get, "/v1/invoices/"+in, 200)
	for range 12 { // more than the invoice shows of itself
		k.do(post, "/v1/invoiceitems", 200, "customer", cus, "invoice", in, "amount", "1", "currency", "eur",
			"metadata[line]", "r")
	}
	k.do(get, "/v1/invoices/"+in, 200)
	k.do(get, "/v1/invoices/"+in+"/lines", 200, "limit", "100")
	k.do(get, "/v1/invoiceitems", 200, "invoice", in)
	k.do(post, "/v1/invoices/"+in+"/pay", 400)
	k.do(post, "/v1/invoices/"+in+"/void", 400)
	k.do(post, "/v1/invoices/"+in+"/finalize", 200, "auto_advance", "true")
	k.do(post, "/v1/invoices/"+in+"/finalize", 400)
	k.do(post, "/v1/invoiceitems", 400, "customer", cus, "invoice", in, "amount", "1", "currency", "eur")
	k.s.Billing.Run()
	k.do(get, "/v1/invoices", 200, "status", "open", "created[gte]", "1")
	k.do(post, "/v1/invoices/"+in+"/pay", 402)
	k.do(post, "/v1/invoices/"+in+"/mark_uncollectible", 200)
	k.do(post, "/v1/invoices/"+in+"/mark_uncollectible", 400)
	if !k.s.Invoices.PayHere(in, "pm_card_visa") || k.s.Invoices.PayHere(in, "pm_card_visa") {
		t.Fatal("an invoice is paid once")
	}
	k.do(get, "/v1/invoices/"+in, 200)
	k.do(post, "/v1/invoices/"+in+"/pay", 400)
	k.do(get, "/v1/balance_transactions", 200, "expand[0]", "data.source")
	k.do(get, "/v1/payment_intents", 200, "customer", cus)

	use(200, "5000000")
	at.Add(60)
	k.s.Billing.EndPeriod(cus)
	ids = k.s.Invoices.Of(cus)
	gone := ids[len(ids)-1]
	k.s.Billing.HourOver(gone)
	k.do(post, "/v1/invoices/"+gone+"/void", 200)
	use(200, "5000000")
	at.Add(60)
	byHand := k.s.Billing.EndPeriod(cus)[0]
	k.do(post, "/v1/invoices/"+byHand+"/finalize", 200)
	k.do(post, "/v1/invoices/"+byHand+"/pay", 200, "paid_out_of_band", "true")
	k.do(get, "/v1/invoices/"+k.s.Billing.InvoiceByHand(cus, "eur", 700), 200)
	k.do(post, "/v1/subscriptions/"+sub, 200, "cancel_at_period_end", "true")
	k.do(post, "/v1/subscriptions/"+sub, 200, "cancel_at_period_end", "false")
	use(200, "5000000")
	at.Add(60)
	k.do(http.MethodDelete, "/v1/subscriptions/"+sub, 200, "invoice_now", "true")
	k.do(http.MethodDelete, "/v1/subscriptions/"+sub, 404, "invoice_now", "true")
	k.do(post, "/v1/subscriptions/"+sub, 400, "cancel_at_period_end", "true")
	k.do(get, "/v1/subscriptions/"+sub, 200)

	o, err := published()
	if err != nil {
		t.Fatal(err)
	}
	ds := k.s.Webhooks.Deliveries()
	if len(ds) < 30 {
		t.Fatal(len(ds))
	}
	o.eventsAsPublished(t, ds)
}

// What the meter counted is rounded half up to whole cents, whatever the price and however much it is.
func TestMeter_RoundedHalfUp(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		units   int64
		decimal string
		want    int64
	}{
		{0, "0.0001", 0}, {4999, "0.0001", 0}, {5000, "0.0001", 1}, {14_999, "0.0001", 1}, {15_000, "0.0001", 2},
		{9_223_372_036_854_775_807, "0.0001", 922_337_203_685_478}, {3, "0.5", 2}, {1, "0.499999999999", 0}, {7, "12", 84},
	} {
		if got := meteredCents(x.units, x.decimal); got != x.want {
			t.Errorf("%d × %s = %d, want %d", x.units, x.decimal, got, x.want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		units := r.Int64()
		exact := new(big.Rat).SetFrac(big.NewInt(units), big.NewInt(10_000))
		want, err := strconv.ParseInt(exact.FloatString(0), 10, 64) // half away from zero
		if got := meteredCents(units, "0.0001"); err != nil || got != want {
			t.Fatalf("%d: %d, want %d", units, got, want)
		}
	}
}

func TestSubscription_MonthEndsOnAnchorDay(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2027, 12, 31, 23, 59, 58, 0, time.UTC)
	for n, want := range []string{"2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"} {
		if got := time.Unix(monthsAfter(anchor.Unix(), n), 0).UTC().Format(time.DateOnly + " 15:04:05"); got != want+
			" 23:59:58" {
			t.Error(n, got)
		}
	}
}

// Servers that share a state bill once: whichever of them sees that a period is over, there is one invoice and one
// charge.
func TestShared_BillOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var at atomic.Int64
	at.Store(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Unix())
	var servers []*Server
	var srvs []*httptest.Server
	for range 3 {
		s, srv := serve(t, Config{DB: d, WebhookSecret: "w", Now: func() time.Time { return time.Unix(at.Load(), 0) }})
		servers, srvs = append(servers, s), append(srvs, srv)
	}
	post := func(i int, path string, form url.Values) {
		t.Helper()
		if status, body := call(t, srvs[i], path, newID("k"), form); status != 200 {
			t.Fatal(status, body)
		}
	}
	post(0, "/v1/customers", url.Values{"email": {"a@b.c"}})
	cus := servers[0].store.Customers.Order[0]
	post(1, "/v1/customers/"+cus, url.Values{"invoice_settings[default_payment_method]": {"pm_card_visa"}})
	post(1, "/v1/billing/meters", url.Values{
		"event_name":                   {"u"},
		"display_name":                 {"U"},
		"default_aggregation[formula]": {"sum"},
	})
	post(2, "/v1/products", url.Values{"id": {"p"}, "name": {"P"}})
	post(2, "/v1/prices", url.Values{
		"currency":              {"eur"},
		"product":               {"p"},
		"unit_amount_decimal":   {"0.0001"},
		"recurring[interval]":   {"month"},
		"recurring[usage_type]": {"metered"},
		"recurring[meter]":      {servers[1].store.Meters.Order[0]},
	})
	post(0, "/v1/subscriptions", url.Values{"customer": {cus}, "items[0][price]": {servers[2].store.Prices.Order[0]}})
	for i := range servers {
		post(i, "/v1/billing/meter_events", url.Values{
			"event_name":                  {"u"},
			"payload[stripe_customer_id]": {cus},
			"payload[value]":              {"1000000"},
		})
	}
	at.Store(time.Date(2026, 4, 1, 1, 0, 0, 0, time.UTC).Unix())
	for _, s := range servers {
		s.Billing.Run()
	}
	for _, s := range servers {
		if n, sum := s.Meters.Metered(cus); n != 3 || sum != 3_000_000 {
			t.Fatal(n, sum)
		}
		if n, cents := s.Charges.Total(); n != 1 || cents != 300 || len(s.Invoices.Of(cus)) != 2 {
			t.Fatal(n, cents, s.Invoices.Of(cus))
		}
	}
}

// The payer sees the invoice on its page, and pays there.
func TestPages_Invoice(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	post := http.MethodPost
	cus := k.do(post, "/v1/customers", 200, "email", "a@b.c")
	mtr := k.do(post, "/v1/billing/meters", 200, "event_name", "u", "display_name", "U", "default_aggregation[formula]",
		"sum")
	k.do(post, "/v1/products", 200, "id", "p", "name", "P")
	price := k.do(post, "/v1/prices", 200, "currency", "eur", "product", "p", "unit_amount_decimal", "0.0001",
		"recurring[interval]", "month", "recurring[usage_type]", "metered", "recurring[meter]", mtr)
	k.do(post, "/v1/subscriptions", 200, "customer", cus, "items[0][price]", price)
	k.do(post, "/v1/invoiceitems", 200, "customer", cus, "amount", "705", "currency", "eur")
	in := k.s.Billing.EndPeriod(cus)[0]
	page := func(body url.Values, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/pay/invoices/"+in, nil)
		if body != nil {
			r = httptest.NewRequest(http.MethodPost, "/pay/invoices/"+in, nil)
			r.Form = body
		}
		k.s.Pages().ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("Location"), w.Body.String()); !strings.Contains(got, want) {
			t.Fatalf("%s, want %q", got, want)
		}
	}
	page(nil, "404")
	k.s.Billing.HourOver(in)
	page(nil, "Pay 7.05 eur")
	page(url.Values{"method": {"pm_card_visa_chargeDeclined"}}, "?failed=1")
	page(url.Values{"method": {"pm_card_visa"}}, "303 http://pay.test/pay/invoices/"+in)
	page(nil, "is paid")
}
