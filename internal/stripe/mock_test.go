package stripe_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
	"github.com/stripe/stripe-mock/spec"

	"github.com/musterhq/muster/internal/stripe"
)

// mock is Stripe's own stand-in, strict about the API version: it checks every URL and parameter against the published
// description, and remembers nothing.
func mock(t *testing.T) *stripe.Client {
	t.Helper()
	published, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		t.Fatal(err)
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		t.Fatal(err)
	}
	withMeters(t, published, fixtures)
	stub, err := server.NewStubServer(fixtures, published, true, false)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(stub.HandleRequest))
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_123", WebhookSecret: "w", URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withMeters adds what later versions of Stripe's description contain about meters: our version has them and does not
// describe them.
func withMeters(t *testing.T, s *spec.Spec, f *spec.Fixtures) {
	t.Helper()
	raw, err := os.ReadFile("sandbox/testdata/meters.json")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		spec.Spec
		Fixtures map[spec.ResourceID]interface{} `json:"fixtures"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(s.Paths, m.Paths)
	maps.Copy(s.Components.Schemas, m.Components.Schemas)
	maps.Copy(f.Resources, m.Fixtures)
}

// Stripe's own description of its API knows every call we make, and every parameter in it.
func TestClient_CallsMatchOpenAPI(t *testing.T) {
	t.Parallel()
	c := mock(t)
	for name, call := range map[string]func() error{
		"customer": func() error {
			_, err := c.CreateCustomer(t.Context(), "k1", stripe.Customer{Org: "org_1", Name: "n", Email: "a@b.c"})
			return err
		},
		"payment": func() error {
			_, err := c.CreatePayment(t.Context(), "k2", stripe.NewPayment{
				TopUp:       "top_1",
				Customer:    "cus_1",
				Method:      "pm_1",
				Cents:       100,
				Currency:    "EUR",
				Description: "d",
			})
			return err
		},
		"payment with the payer": func() error {
			_, err := c.CreatePayment(t.Context(), "k4", stripe.NewPayment{
				TopUp:     "top_1",
				Customer:  "cus_1",
				Method:    "pm_1",
				Cents:     100,
				Currency:  "EUR",
				ReturnURL: "http://m.test/back",
				Receipt:   "a@b.c",
			})
			return err
		},
		"payment given up": func() error { _, err := c.CancelPayment(t.Context(), "k5", "pi_1"); return err },
		"card page": func() error {
			_, err := c.CreateSetup(t.Context(), "k6", stripe.NewSetup{
				Setup:      "cset_1",
				Customer:   "cus_1",
				Currency:   "EUR",
				SuccessURL: "http://m.test/ok",
				CancelURL:  "http://m.test/no",
			})
			return err
		},
		"card page read": func() error { _, err := c.Setup(t.Context(), "seti_1"); return err },
		"card forgotten": func() error { return c.DetachCard(t.Context(), "k7", "pm_1") },
		"meter found":    func() error { _, err := c.FindMeter(t.Context(), "e"); return err },
		"meter":          func() error { _, err := c.CreateMeter(t.Context(), "k20", "e", "n"); return err },
		"product found":  func() error { _, err := c.HasProduct(t.Context(), "muster_usage"); return err },
		"product":        func() error { return c.CreateProduct(t.Context(), "k21", "muster_usage", "n") },
		"price found":    func() error { _, err := c.FindPrice(t.Context(), "muster_usage_eur"); return err },
		"price": func() error {
			_, err := c.CreatePrice(t.Context(), "k22", "muster_usage_eur", "muster_usage", stripe.Price{
				Meter:    "mtr_1",
				Currency: "EUR",
				Cents:    0.0001,
			})
			return err
		},
		"endpoint found": func() error { _, err := c.FindEndpoint(t.Context(), "https://m.test/hook", false); return err },
		"endpoint": func() error {
			_, err := c.CreateEndpoint(t.Context(), "k23", "https://m.test/hook",
				[]string{"charge.dispute.created", "refund.created"}, true)
			return err
		},
		"endpoint changed": func() error { return c.EnableEndpoint(t.Context(), "k24", "we_1", []string{"refund.created"}) },
		"usage": func() error {
			return c.SendUsage(t.Context(), stripe.UsageEvent{Identifier: "ltx_1", Customer: "cus_1", Value: 5, At: time.Now()})
		},
		"usage taken back": func() error { return c.CancelUsage(t.Context(), "k30", "ltx_1") },
		"usage counted": func() error {
			_, err := c.UsageOf(t.Context(), stripe.Meter{ID: "mtr_1"}, "cus_1", time.Unix(60, 0), time.Unix(3600, 0))
			return err
		},
		"default card": func() error { return c.SetDefaultMethod(t.Context(), "k31", "cus_1", "pm_1") },
		"subscription": func() error {
			_, err := c.Subscribe(t.Context(), "k32", stripe.SubscribeRequest{Customer: "cus_1", Org: "org_1", Currency: "EUR"})
			return err
		},
		"subscription read":    func() error { _, err := c.Subscription(t.Context(), "sub_1"); return err },
		"subscription found":   func() error { _, err := c.FindSubscription(t.Context(), "cus_1", "org_1"); return err },
		"subscription ended":   func() error { return c.CancelSubscription(t.Context(), "k33", "sub_1", true) },
		"subscription ending":  func() error { return c.CancelSubscription(t.Context(), "k34", "sub_1", false) },
		"invoice read":         func() error { _, err := c.Invoice(t.Context(), "in_1"); return err },
		"invoices":             func() error { _, err := c.Invoices(t.Context(), "sub_1"); return err },
		"subscription resumed": func() error { _, err := c.ResumeSubscription(t.Context(), "k40", "sub_1"); return err },
		"line": func() error {
			return c.AddInvoiceLine(t.Context(), "k35", stripe.InvoiceLine{
				Invoice:     "in_1",
				Customer:    "cus_1",
				Cents:       -1,
				Currency:    "EUR",
				Description: "d",
				Ref:         "r",
			})
		},
		"line found":         func() error { _, err := c.FindInvoiceLine(t.Context(), "in_1", "r"); return err },
		"invoice finalised":  func() error { _, err := c.FinaliseInvoice(t.Context(), "k36", "in_1"); return err },
		"invoice collected":  func() error { _, err := c.PayInvoice(t.Context(), "k37", "in_1", "pm_1"); return err },
		"invoice given up":   func() error { _, err := c.GiveUpInvoice(t.Context(), "k38", "in_1"); return err },
		"invoice taken back": func() error { _, err := c.VoidInvoice(t.Context(), "k39", "in_1"); return err },
		"refund": func() error {
			_, err := c.CreateRefund(t.Context(), "k8", stripe.NewRefund{Refund: "ref_1", Payment: "pi_1", Cents: 100})
			return err
		},
		"refund read":  func() error { _, err := c.Refund(t.Context(), "re_1"); return err },
		"refund found": func() error { _, err := c.FindRefund(t.Context(), "pi_1", "ref_1"); return err },
		"dispute read": func() error { _, err := c.Dispute(t.Context(), "dp_1"); return err },
		"balance": func() error {
			return c.BalanceTxs(t.Context(), time.Unix(1_700_000_000, 0), time.Now(),
				func(stripe.BalanceTx) error { return nil })
		},
		"funds": func() error {
			all, err := c.Funds(t.Context())
			if err == nil && len(all) == 0 {
				err = errors.New("no currency")
			}
			return err
		},
		"payments": func() error {
			return c.Payments(t.Context(), time.Unix(1_700_000_000, 0), func(stripe.Payment) error { return nil })
		},
		"customer's org": func() error { _, err := c.CustomerOrg(t.Context(), "cus_1"); return err },
		"payment read":   func() error { _, err := c.Payment(t.Context(), "pi_1"); return err },
		"payment found":  func() error { _, err := c.FindPayment(t.Context(), "cus_1", "top_1"); return err },
		"checkout": func() error {
			_, err := c.CreateCheckout(t.Context(), "k3", stripe.NewCheckout{
				TopUp:       "top_1",
				Customer:    "cus_1",
				Cents:       100,
				Currency:    "EUR",
				Description: "d",
				SuccessURL:  "http://m.test/ok",
				CancelURL:   "http://m.test/no",
			})
			return err
		},
		"checkout read": func() error { _, err := c.Checkout(t.Context(), "cs_1"); return err },
		"account": func() error {
			_, err := c.CreateAccount(t.Context(), "k9", stripe.NewAccount{Org: "org_1", Country: "DE", Email: "a@b.c"})
			return err
		},
		"account read": func() error { _, err := c.Account(t.Context(), "acct_1"); return err },
		"account page": func() error {
			_, err := c.CreateAccountLink(t.Context(), "k10", stripe.NewAccountLink{
				Account: "acct_1",
				Refresh: "http://m.test/again",
				Return:  "http://m.test/back",
			})
			return err
		},
		"transfer": func() error {
			_, err := c.CreateTransfer(t.Context(), "k11", stripe.NewTransfer{
				Payout:   "po_1",
				Account:  "acct_1",
				Cents:    100,
				Currency: "EUR",
			})
			return err
		},
		"transfer read":  func() error { _, err := c.Transfer(t.Context(), "tr_1"); return err },
		"transfer found": func() error { _, err := c.FindTransfer(t.Context(), "po_1"); return err },
		"transfer taken back": func() error {
			_, err := c.ReverseTransfer(t.Context(), "k12", stripe.NewReversal{Reversal: "r_1", Transfer: "tr_1", Cents: 100})
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
