package stripe_test

import (
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

// clock is a time that a test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(c.at.Load(), 0) }
func (c *clock) move(d time.Duration) { c.at.Add(int64(d / time.Second)) }
func (c *clock) to(t time.Time)       { c.at.Store(t.Unix()) }
func utc(y, m, d, h, min int) time.Time {
	return time.Date(y, time.Month(m), d, h, min, 0, 0, time.UTC)
}

// billed is a Stripe with a clock, and an org that pays afterwards.
type billed struct {
	t    *testing.T
	c    *stripe.Client
	fake *sandbox.Server
	clock
	customer string
	sub      stripe.Subscription
	n        int
}

func newBilled(t *testing.T, start time.Time, card string) *billed {
	t.Helper()
	b := &billed{t: t}
	b.to(start)
	var err error
	if b.fake, err = sandbox.New(sandbox.Config{
		WebhookSecret: "w",
		PublicURL:     "http://pay.test",
		Now:           b.now,
	}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(b.fake)
	t.Cleanup(srv.Close)
	if b.c, err = stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "w", URL: srv.URL}); err != nil {
		t.Fatal(err)
	}
	m, err := b.c.CreateMeter(t.Context(), "m", stripe.UsageMeter, "usage")
	if err == nil {
		err = b.c.CreateProduct(t.Context(), "p", "u", "usage")
	}
	if err == nil {
		_, err = b.c.CreatePrice(t.Context(), "r", stripe.UsagePrice("EUR"), "u", stripe.Price{
			Meter:    m.ID,
			Currency: "EUR",
			Cents:    0.0001,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.customer = customer(t, b.c)
	if card != "" {
		if err := b.c.SetDefaultMethod(t.Context(), "d", b.customer, card); err != nil {
			t.Fatal(err)
		}
	}
	if b.sub, err = b.c.Subscribe(t.Context(), "s", stripe.SubscribeRequest{
		Customer: b.customer,
		Org:      "org_1",
		Currency: "EUR",
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *billed) use(v money.Micro) {
	b.t.Helper()
	b.n++
	if err := b.c.SendUsage(b.t.Context(), stripe.UsageEvent{
		Identifier: fmt.Sprint("u", b.n),
		Customer:   b.customer,
		Value:      v,
		At:         b.now(),
	}); err != nil {
		b.t.Fatal(err)
	}
}

// last is the customer's newest invoice.
func (b *billed) last() stripe.Invoice {
	b.t.Helper()
	b.fake.Billing.Run()
	ids := b.fake.Invoices.Of(b.customer)
	in, err := b.c.Invoice(b.t.Context(), ids[len(ids)-1])
	if err != nil {
		b.t.Fatal(err)
	}
	return in
}

func TestSubscription_Month(t *testing.T) {
	t.Parallel()
	b := newBilled(t, utc(2026, 1, 31, 10, 0), "pm_card_visa")
	if first := b.last(); first.Status != stripe.InvoicePaid || first.Total != 0 ||
		first.Reason != "subscription_create" || b.sub.Status != "active" || !b.sub.End.Equal(utc(2026, 2, 28, 10, 0)) {
		t.Fatalf("%+v %+v", b.sub, first)
	}
	b.use(1_234_567) // 123.4567 cents
	b.move(time.Hour)
	b.use(2_345_000)
	b.to(b.sub.End.Add(-time.Second))
	b.use(400) // 357.9967 cents in all
	b.to(b.sub.End)
	b.use(9_000_000) // the next period's
	in := b.last()
	if in.Status != stripe.InvoiceDraft || in.Metered != 358 || in.Total != 358 || in.Lines[0].Quantity != 3_579_967 ||
		in.Number != "" {
		t.Fatalf("%+v", in)
	}
	if err := b.c.AddInvoiceLine(t.Context(), "l", stripe.InvoiceLine{
		Invoice:     in.ID,
		Customer:    b.customer,
		Cents:       -1,
		Currency:    "EUR",
		Description: "Residue",
		Ref:         "r1",
	}); err != nil {
		t.Fatal(err)
	}
	if there, err := b.c.FindInvoiceLine(t.Context(), in.ID, "r1"); err != nil || !there {
		t.Fatal(there, err)
	}
	in, err := b.c.FinaliseInvoice(t.Context(), "f", in.ID)
	if err != nil || in.Status != stripe.InvoiceOpen || in.Total != 357 || in.Number == "" || in.URL == "" ||
		in.Payment == "" {
		t.Fatalf("%+v %v", in, err)
	}
	if again, err := b.c.FinaliseInvoice(t.Context(), "f2", in.ID); err != nil || again.ID != in.ID ||
		again.Status != stripe.InvoicePaid {
		// charged meanwhile
		t.Fatalf("%+v %v", again, err)
	}
	if err := b.c.AddInvoiceLine(t.Context(), "l2", stripe.InvoiceLine{
		Invoice:     in.ID,
		Customer:    b.customer,
		Cents:       1,
		Currency:    "EUR",
		Description: "late",
	}); stripe.As(err) == nil || stripe.As(err).Outcome != stripe.Rejected {
		t.Fatal(err)
	}
	in = b.last()
	want := stripe.Invoice{
		ID:           in.ID,
		Number:       in.Number,
		Status:       stripe.InvoicePaid,
		Reason:       "subscription_cycle",
		Customer:     b.customer,
		Subscription: b.sub.ID,
		Org:          "org_1",
		Currency:     "EUR",
		Total:        357,
		Metered:      358,
		AmountDue:    357,
		AmountPaid:   357,
		PeriodStart:  b.sub.Start,
		PeriodEnd:    b.sub.End,
		CreatedAt:    b.sub.End,
		Attempts:     1,
		URL:          "http://pay.test/pay/invoices/" + in.ID,
		Payment:      in.Payment,
		Lines: []stripe.Line{
			{
				ID:          in.Lines[0].ID,
				Description: "GPU cluster usage",
				Cents:       358,
				Metered:     true,
				Quantity:    3_579_967,
			}, {ID: in.Lines[1].ID, Ref: "r1", Description: "Residue", Cents: -1}},
	}
	if d := cmp.Diff(want, in); d != "" {
		t.Fatal(d)
	}
	var found []stripe.BalanceTx
	if err := b.c.BalanceTxs(t.Context(), b.sub.Start, time.Now().Add(24*365*time.Hour),
		func(x stripe.BalanceTx) error { found = append(found, x); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Cents != 357 || found[0].Invoice != in.ID || found[0].FeeCents == 0 {
		t.Fatalf("%+v", found)
	}
	all, err := b.c.Invoices(t.Context(), b.sub.ID)
	if err != nil || len(all) != 2 || all[1].Reason != "subscription_create" {
		t.Fatalf("%+v %v", all, err)
	}
	if d := cmp.Diff(want, all[0]); d != "" {
		t.Fatal(d)
	}
	if pay, err := b.c.Payment(t.Context(), in.Payment); err != nil || pay.Invoice != in.ID ||
		pay.Status != stripe.Succeeded {
		t.Fatalf("%+v %v", pay, err)
	}
	now, err := b.c.Subscription(t.Context(), b.sub.ID)
	if err != nil || !now.Start.Equal(b.sub.End) || !now.End.Equal(utc(2026, 3, 31, 10, 0)) {
		t.Fatalf("%+v %v", now, err)
	}
}

// A draft that is left alone is final after an hour; usage reported in that hour still counts, later usage never.
func TestInvoice_FinalAfterAnHour(t *testing.T) {
	t.Parallel()
	b := newBilled(t, utc(2026, 3, 1, 0, 0), "pm_card_visa")
	b.use(1_000_000)
	late := func(id string, v money.Micro) {
		t.Helper()
		if err := b.c.SendUsage(t.Context(), stripe.UsageEvent{
			Identifier: id,
			Customer:   b.customer,
			Value:      v,
			At:         b.sub.End.Add(-time.Hour),
		}); err != nil {
			t.Fatal(err)
		}
	}
	b.to(b.sub.End.Add(59 * time.Minute))
	late("in time", 500_000)
	if in := b.last(); in.Status != stripe.InvoiceDraft || in.Total != 150 {
		t.Fatalf("%+v", in)
	}
	b.move(time.Minute)
	if in := b.last(); in.Status != stripe.InvoicePaid || in.Total != 150 {
		t.Fatalf("%+v", in)
	}
	late("too late", 700_000)
	b.to(utc(2026, 5, 1, 1, 0))
	if in := b.last(); in.Total != 0 || in.Status != stripe.InvoicePaid {
		t.Fatalf("%+v", in)
	}
}

func TestMeter_UsageCountsOnce(t *testing.T) {
	t.Parallel()
	b := newBilled(t, utc(2026, 3, 1, 0, 0), "")
	e := stripe.UsageEvent{Identifier: "x", Customer: b.customer, Value: 5, At: b.now()}
	b.fake.Faults.Fail(sandbox.Error500)
	if err := b.c.SendUsage(t.Context(), e); stripe.As(err) == nil || stripe.As(err).Outcome != stripe.Unknown {
		t.Fatal(err)
	}
	b.fake.Keys.Forget()
	for range 3 {
		if err := b.c.SendUsage(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		b.fake.Keys.Forget()
	}
	count := func(want money.Micro) {
		t.Helper()
		got, err := b.c.Usage(t.Context(), b.customer, e.At, e.At.Add(time.Minute))
		if err != nil || got != want {
			t.Fatal(got, err)
		}
	}
	count(5)
	b.move(25 * time.Hour)
	if err := b.c.SendUsage(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	count(10) // a day later Stripe counts the identifier again
	if err := b.c.CancelUsage(t.Context(), "c", "x"); err != nil {
		t.Fatal(err)
	}
	count(5)
	for name, bad := range map[string]stripe.UsageEvent{
		"old":      {Identifier: "a", Customer: b.customer, Value: 1, At: b.now().Add(-35*24*time.Hour - time.Second)},
		"ahead":    {Identifier: "b", Customer: b.customer, Value: 1, At: b.now().Add(5*time.Minute + time.Second)},
		"negative": {Identifier: "c", Customer: b.customer, Value: -1, At: b.now()},
	} {
		if err := b.c.SendUsage(t.Context(), bad); stripe.As(err) == nil || stripe.As(err).Outcome != stripe.Rejected {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refused card is tried again for days; the payer may pay on the invoice's page with another.
func TestInvoice_CardDeclined(t *testing.T) {
	t.Parallel()
	for _, card := range []string{"", "pm_card_chargeCustomerFail", "pm_card_authenticationRequired"} {
		b := newBilled(t, utc(2026, 3, 1, 0, 0), card)
		b.use(10_000_000)
		b.to(b.sub.End.Add(2 * time.Hour))
		b.fake.Billing.Run()
		for i := 1; i < 6; i++ {
			in := b.last()
			if want := min(i, 4); in.Status != stripe.InvoiceOpen || in.Attempts != want ||
				in.NextAttempt.IsZero() != (want == 4) {
				t.Fatalf("%q: %+v", card, in)
			}
			b.move(3*24*time.Hour + time.Minute)
		}
		if s, err := b.c.Subscription(t.Context(), b.sub.ID); err != nil || s.Status != "past_due" {
			t.Fatal(s, err)
		}
		in := b.last()
		if card != "" {
			if _, err := b.c.PayInvoice(t.Context(), "p", in.ID, ""); stripe.As(err) == nil ||
				stripe.As(err).Outcome != stripe.Declined {
				t.Fatal(err)
			}
		}
		if in, err := b.c.GiveUpInvoice(t.Context(), "g", in.ID); err != nil || in.Status != stripe.InvoiceUncollectible {
			t.Fatal(in, err)
		}
		if b.fake.Invoices.PayHere(in.ID, "pm_card_visa_chargeDeclined") ||
			!b.fake.Invoices.PayHere(in.ID, "pm_card_authenticationRequired") {
			t.Fatal("the payer may try another card")
		}
		if in := b.last(); in.Status != stripe.InvoicePaid || in.AmountPaid != 1000 {
			t.Fatalf("%+v", in)
		}
		if _, err := b.c.VoidInvoice(t.Context(), "v", in.ID); err != nil {
			t.Fatal(err)
		}
		if s, err := b.c.Subscription(t.Context(), b.sub.ID); err != nil || s.Status != "active" {
			t.Fatal(s, err)
		}
	}
}

// What is too little to charge, or less than nothing, goes into the next invoice.
func TestInvoice_SmallAmountCarriedOver(t *testing.T) {
	t.Parallel()
	b := newBilled(t, utc(2026, 3, 1, 0, 0), "pm_card_visa")
	b.use(490_000)
	b.to(b.sub.End.Add(time.Hour))
	if in := b.last(); in.Status != stripe.InvoicePaid || in.Total != 49 || in.AmountPaid != 0 || in.EndingBalance != 49 {
		t.Fatalf("%+v", in)
	}
	if err := b.c.AddInvoiceLine(t.Context(), "l", stripe.InvoiceLine{
		Customer:    b.customer,
		Cents:       -60,
		Currency:    "EUR",
		Description: "for the next",
	}); err != nil {
		t.Fatal(err)
	}
	b.to(utc(2026, 5, 1, 1, 0))
	if in := b.last(); in.Status != stripe.InvoicePaid || in.Total != -60 || in.AmountPaid != 0 ||
		in.StartingBalance != 49 || in.EndingBalance != -11 {
		t.Fatalf("%+v", in)
	}
	b.use(1_000_000)
	b.to(utc(2026, 6, 1, 1, 0))
	b.fake.Billing.Run()
	if in := b.last(); in.Status != stripe.InvoicePaid || in.Total != 100 || in.AmountPaid != 89 || in.EndingBalance != 0 {
		t.Fatalf("%+v", in)
	}
}

func TestSubscription_Ends(t *testing.T) {
	t.Parallel()
	b := newBilled(t, utc(2026, 3, 1, 0, 0), "pm_card_visa")
	b.use(2_000_000)
	b.move(time.Hour)
	for range 2 {
		if err := b.c.CancelSubscription(t.Context(), "c", b.sub.ID, true); err != nil {
			t.Fatal(err)
		}
	}
	b.move(48 * time.Hour)
	in := b.last()
	if in.Status != stripe.InvoiceDraft || in.Total != 200 { // nothing finalises it
		t.Fatalf("%+v", in)
	}
	if _, err := b.c.FinaliseInvoice(t.Context(), "f", in.ID); err != nil {
		t.Fatal(err)
	}
	if in := b.last(); in.Status != stripe.InvoicePaid {
		t.Fatalf("%+v", in)
	}
	if s, err := b.c.FindSubscription(t.Context(), b.customer, "org_1"); err != nil || s != nil {
		t.Fatal(s, err)
	}
	if err := b.c.CancelSubscription(t.Context(), "n", "sub_none", true); stripe.As(err) == nil ||
		stripe.As(err).Outcome != stripe.Missing {
		t.Fatal(err)
	}

	b = newBilled(t, utc(2026, 3, 1, 0, 0), "pm_card_visa")
	b.use(3_000_000)
	if err := b.c.CancelSubscription(t.Context(), "c", b.sub.ID, false); err != nil {
		t.Fatal(err)
	}
	if s, err := b.c.FindSubscription(t.Context(), b.customer, "org_1"); err != nil || s == nil || !s.Ending ||
		s.Status != "active" {
		t.Fatal(s, err)
	}
	if s, err := b.c.ResumeSubscription(t.Context(), "resume", b.sub.ID); err != nil || s.Ending {
		t.Fatal(s, err)
	}
	if err := b.c.CancelSubscription(t.Context(), "c2", b.sub.ID, false); err != nil {
		t.Fatal(err)
	}
	b.to(b.sub.End.Add(time.Hour))
	if in := b.last(); in.Status != stripe.InvoicePaid || in.Total != 300 {
		t.Fatalf("%+v", in)
	}
	if s, err := b.c.Subscription(t.Context(), b.sub.ID); err != nil || s.Status != "canceled" {
		t.Fatal(s, err)
	}
}
