package stripe_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

func connect(t *testing.T) (*stripe.Client, *sandbox.Server) {
	t.Helper()
	c, _, fake := connectHasty(t)
	return c, fake
}

// connectHasty connects a second client too, which gives up an answer soon.
func connectHasty(t *testing.T) (c, hasty *stripe.Client, fake *sandbox.Server) {
	t.Helper()
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "whsec_x", PublicURL: "http://pay.test"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	if c, err = stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "whsec_x", URL: srv.URL}); err != nil {
		t.Fatal(err)
	}
	if hasty, err = stripe.New(stripe.Config{
		Key:           "sk_test_x",
		WebhookSecret: "whsec_x",
		URL:           srv.URL,
		Timeout:       2 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	return c, hasty, fake
}

func customer(t *testing.T, c *stripe.Client) string {
	t.Helper()
	id, err := c.CreateCustomer(t.Context(), "cus", stripe.Customer{Org: "org_1", Name: "n", Email: "a@b.c"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestPayment_KeyWorksOnce(t *testing.T) {
	t.Parallel()
	c, fake := connect(t)
	p := stripe.NewPayment{
		TopUp:       "top_1",
		Customer:    customer(t, c),
		Method:      "pm_card_visa",
		Cents:       1234,
		Currency:    "EUR",
		Description: "d",
		Meta:        map[string]string{"org": "org_1"},
	}
	first, err := c.CreatePayment(t.Context(), "k", p)
	if err != nil {
		t.Fatal(err)
	}
	want := stripe.Payment{
		ID:       first.ID,
		TopUp:    "top_1",
		Status:   stripe.Succeeded,
		Cents:    1234,
		Currency: "EUR",
		Method:   first.Method,
		Customer: p.Customer,
		Meta:     map[string]string{"topup": "top_1", "org": "org_1"},
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Fatal(diff)
	}
	again, err := c.CreatePayment(t.Context(), "k", p)
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	p.Cents++
	if _, err := c.CreatePayment(t.Context(), "k", p); stripe.As(err) == nil || stripe.As(err).Outcome != stripe.Unknown ||
		stripe.As(err).Code != stripe.CodeKeyReused {
		t.Fatalf("another amount under a known key: %v", err)
	}
	if n, cents := fake.Charges.Total(); n != 1 || cents != 1234 {
		t.Fatal(n, cents)
	}
	got, err := c.Payment(t.Context(), first.ID)
	if err != nil || got.Receipt == "" {
		t.Fatal(got, err)
	}
	got.Receipt, got.Fingerprint = "", first.Fingerprint // a read returns more than the first answer
	if diff := cmp.Diff(first, got); diff != "" {
		t.Fatal(diff)
	}
}

// What a failed call leaves behind decides whether its key must be used again.
func TestErrors_Outcomes(t *testing.T) {
	t.Parallel()
	patient, hasty, fake := connectHasty(t)
	c := patient
	cus := customer(t, c)
	pay := func(key, customer, method string, cents int64) error {
		_, err := c.CreatePayment(t.Context(), key, stripe.NewPayment{
			TopUp:    "t",
			Customer: customer,
			Method:   method,
			Cents:    cents,
			Currency: "EUR",
		})
		return err
	}
	want := func(name string, err error, o stripe.Outcome, code string) {
		t.Helper()
		if e := stripe.As(err); e == nil || e.Outcome != o || e.Code != code {
			t.Errorf("%s: %v, want %s %s", name, err, o, code)
		}
	}
	want("declined", pay("a", cus, "pm_card_visa_chargeDeclined", 100), stripe.Declined, "generic_decline")
	want("declined again", pay("a", cus, "pm_card_visa_chargeDeclined", 100), stripe.Declined, "generic_decline")
	want("too little", pay("b", cus, "pm_card_visa", 1), stripe.Rejected, "parameter_invalid_integer")
	want("no customer", pay("c", "cus_gone", "pm_card_visa", 100), stripe.Missing, "resource_missing")
	_, err := c.Payment(t.Context(), "pi_gone")
	want("no payment", err, stripe.Missing, "resource_missing")
	for i, f := range []struct {
		fault sandbox.Fault
		o     stripe.Outcome
		code  string
	}{
		{sandbox.RateLimited, stripe.Later, "rate_limit"}, {sandbox.InUse, stripe.Later, "idempotency_key_in_use"},
		{sandbox.Down, stripe.Unknown, ""}, {sandbox.Error500, stripe.Unknown, ""},
		{sandbox.Truncated, stripe.Unknown, "no_answer"}, {sandbox.Timeout, stripe.Unknown, "no_answer"},
	} {
		fake.Faults.Fail(f.fault)
		if c = patient; f.fault == sandbox.Timeout {
			c = hasty
		}
		want(string(f.fault), pay(fmt.Sprint("f", i), cus, "pm_card_visa", 100), f.o, f.code)
	}
	c = patient
	// on a used connection the transport sends again by itself, under the same key
	fake.Faults.Fail(sandbox.LostAnswer, sandbox.LostAnswer)
	want("lost", pay("l", cus, "pm_card_visa", 100), stripe.Unknown, "no_answer")
	fake.Faults.Heal()
	if n, _ := fake.Charges.Total(); n != 4 { // error 500, truncated, timeout, lost: they took effect
		t.Fatalf("charged %d times", n)
	}
	for _, key := range []string{"f3", "f4", "f5", "l"} { // and the same key finds out
		if err := pay(key, cus, "pm_card_visa", 100); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if n, _ := fake.Charges.Total(); n != 4 {
		t.Fatalf("charged %d times in the end", n)
	}
}

func TestPayment_FindByTopUp(t *testing.T) {
	t.Parallel()
	c, _ := connect(t)
	cus := customer(t, c)
	for i := range 130 { // more than a page
		if _, err := c.CreatePayment(t.Context(), fmt.Sprint("k", i), stripe.NewPayment{
			TopUp:    fmt.Sprint("top_", i),
			Customer: cus,
			Method:   "pm_card_visa",
			Cents:    100 + int64(i),
			Currency: "EUR",
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, 29, 30, 129} {
		p, err := c.FindPayment(t.Context(), cus, fmt.Sprint("top_", i))
		if err != nil || p == nil || p.Cents != 100+int64(i) {
			t.Fatal(i, p, err)
		}
	}
	if p, err := c.FindPayment(t.Context(), cus, "top_none"); err != nil || p != nil {
		t.Fatal(p, err)
	}
}

func TestCheckout(t *testing.T) {
	t.Parallel()
	c, fake := connect(t)
	page, err := c.CreateCheckout(t.Context(), "k", stripe.NewCheckout{
		TopUp:       "top_1",
		Customer:    customer(t, c),
		Cents:       500,
		Currency:    "EUR",
		Description: "credit",
		SuccessURL:  "http://m.test/ok",
		CancelURL:   "http://m.test/no",
	})
	if err != nil || !page.Open || page.URL != "http://pay.test/pay/"+page.ID || page.TopUp != "top_1" ||
		page.Payment != "" {
		t.Fatalf("%+v %v", page, err)
	}
	if !fake.Checkout.Pay(page.ID, "pm_card_visa") || fake.Checkout.Pay(page.ID, "pm_card_visa") {
		t.Fatal("a page is paid once")
	}
	page, err = c.Checkout(t.Context(), page.ID)
	if err != nil || page.Open || page.Payment == "" {
		t.Fatalf("%+v %v", page, err)
	}
	pay, err := c.Payment(t.Context(), page.Payment)
	if err != nil || pay.TopUp != "top_1" || pay.Status != stripe.Succeeded || pay.Cents != 500 {
		t.Fatalf("%+v %v", pay, err)
	}
}

// While one secret takes the place of another, both are believed, and no third.
func TestEvent_SecretRotation(t *testing.T) {
	t.Parallel()
	c, err := stripe.New(stripe.Config{Key: "sk_x", WebhookSecret: "whsec_old, whsec_new"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	body := []byte(`{"id":"evt_1","type":"x","data":{"object":{"id":"pi_1"}}}`)
	for secret, good := range map[string]bool{
		"whsec_old":            true,
		"whsec_new":            true,
		"whsec_other":          false,
		"":                     false,
		"whsec_old, whsec_new": false,
	} {
		if _, err := c.Event(body, sandbox.Sign(body, secret, now)); (err == nil) != good {
			t.Errorf("%q: %v", secret, err)
		}
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []stripe.Config{{}, {
		Key:           "pk_x",
		WebhookSecret: "w",
	}, {Key: "sk_x"}, {Key: "sk_x", WebhookSecret: "a,,b"}, {Key: "sk_x", WebhookSecret: "w", URL: "::"}} {
		if _, err := stripe.New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func FuzzEvent(f *testing.F) {
	c, err := stripe.New(stripe.Config{Key: "sk_x", WebhookSecret: "w"})
	if err != nil {
		f.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	f.Add([]byte(`{"id":"evt_1","type":"x","data":{"object":{"id":"pi_1"}}}`), "t=1,v1=00")
	f.Add([]byte(`{"data":null}`), "")
	f.Fuzz(func(t *testing.T, payload []byte, header string) {
		if _, err := c.Event(payload, header); err == nil {
			t.Fatal("an unsigned event was accepted")
		}
		e, err := c.Event(payload, sandbox.Sign(payload, "w", now))
		if err == nil && (e.ID == "" || e.Type == "" || e.ObjectID == "") {
			t.Fatalf("%+v", e)
		}
	})
}
