package payment

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestBilling_Afterwards(t *testing.T) {
	t.Parallel()
	b := newTab(t, dbtest.New(t), "pm_card_visa")
	b.p.core.out.SendNow(t.Context(), b.subscribe())
	if b.sub.Status != "active" || b.sub.Org != b.payer.Org.String() {
		t.Fatalf("%+v", b.sub)
	}
	b.move(time.Hour)
	b.use(1_234_567)
	b.use(9_999)
	b.SendAll(b.p.core.out)
	if n, sum := b.stripe.Meters.Metered(b.customer()); n != 2 || sum != 1_244_566 {
		t.Fatal(n, sum)
	}
	b.stripe.Webhooks.Deliveries()
	draft := b.stripe.Billing.EndPeriod(b.customer())[0]
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	b.SendAll(b.p.core.out) // a residue of −0.01, then final
	b.stripe.Billing.Run()
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	in, err := b.p.core.stripe.Invoice(t.Context(), draft)
	if err != nil || in.Status != stripe.InvoicePaid || in.Total != 124 || in.Metered != 124 {
		t.Fatalf("%+v %v", in, err)
	}
	if r := b.reconcile(); r.Matched != 1 || r.Suspense != 0 {
		t.Fatalf("%+v", r)
	}
	b.even(124)
	b.use(7_777) // 0.9999… cents short of the next: 1252343 µ in all
	b.use(7_000)
	b.SendAll(b.p.core.out)
	b.stripe.Billing.EndPeriod(b.customer())
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	b.SendAll(b.p.core.out)
	b.stripe.Billing.Run()
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	b.reconcile()
	b.even(124) // a cent is too little to charge: it is owed still
	if len(b.refused) != 0 {
		t.Fatal(b.refused)
	}
}

// Events in any order, repeated and lost, and with lost answers too: refreshing and reconciling
// make the ledger equal to what Stripe did.
func TestBilling_EventsInAnyOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	faults := []sandbox.Fault{sandbox.None, sandbox.Error500, sandbox.RateLimited, sandbox.Down, sandbox.Truncated,
		sandbox.InUse, sandbox.LostAnswer}
	for range 3 {
		b := newTab(t, dbtest.New(t), "pm_card_visa")
		b.subscribe()
		b.SendAll(b.p.core.out)
		b.move(time.Minute)
		var kept []sandbox.Delivery
		var invoices []string
		for range 40 {
			switch r.IntN(8) {
			case 0, 1, 2:
				b.use(money.Micro(r.IntN(3_000_000)))
			case 3:
				invoices = append(invoices, b.stripe.Billing.EndPeriod(b.customer())...)
				b.move(time.Minute)
			case 4:
				if len(invoices) > 0 {
					b.stripe.Billing.HourOver(invoices[r.IntN(len(invoices))])
				}
			case 5:
				for range r.IntN(4) {
					b.stripe.Faults.Fail(faults[r.IntN(len(faults))])
				}
				b.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
				if _, err := b.p.core.out.SendDue(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.stripe.Faults.Heal()
			case 6:
				b.reconcile()
			case 7:
				ds := append(b.stripe.Webhooks.Deliveries(), kept...)
				ds = append(ds, ds...)
				r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
				kept = ds[r.IntN(len(ds)+1):]
				b.Deliver(b.in, ds[:len(ds)-len(kept)])
			}
		}
		// The rest of the events is lost.
		b.stripe.Webhooks.Deliveries()
		for range 3 { // the draft is seen, closed, and paid
			b.SendAll(b.p.core.out)
			b.refresh()
			b.stripe.Billing.Run()
		}
		b.reconcile()
		_, cents := b.stripe.Charges.Total()
		b.even(cents)
		// One last period: the invoices equal the usage, to the cent.
		b.use(1_000_000)
		b.SendAll(b.p.core.out)
		b.stripe.Billing.EndPeriod(b.customer())
		for range 3 {
			b.refresh()
			b.SendAll(b.p.core.out)
			b.stripe.Billing.Run()
		}
		b.reconcile()
		_, cents = b.stripe.Charges.Total()
		b.even(cents)
		var billed int64
		for _, w := range b.wanted {
			billed += w
		}
		if n, sum := b.stripe.Meters.Metered(b.customer()); billed != int64(b.used/10_000) || sum != int64(b.used) ||
			len(b.refused) != 0 {
			t.Fatalf("billed %d of %d; Stripe counts %d events of %d; refused %v", billed, b.used, n, sum, b.refused)
		}
	}
}

// A day after an answer was lost Stripe knows neither key nor identifier: what was counted is looked up, and counts
// once.
func TestBilling_UsageAnswerLostForADay(t *testing.T) {
	t.Parallel()
	for _, fault := range []sandbox.Fault{sandbox.Error500, sandbox.Down} {
		b := newTab(t, dbtest.New(t), "pm_card_visa")
		b.p.core.out.SendNow(t.Context(), b.subscribe())
		b.use(1_000_000)
		b.stripe.Faults.Fail(fault, fault)
		b.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state = 'pending'")
		if _, err := b.p.core.out.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.stripe.Faults.Heal()
		b.move(25 * time.Hour)
		b.stripe.Keys.Forget()
		b.Exec("UPDATE stripe_outbox SET first_sent_at = first_sent_at - interval '25 hours'")
		b.SendAll(b.p.core.out)
		if n, sum := b.stripe.Meters.Metered(b.customer()); n != 1 || sum != 1_000_000 {
			t.Fatal(fault, n, sum)
		}
	}
	b := newTab(t, dbtest.New(t), "pm_card_visa")
	b.p.core.out.SendNow(t.Context(), b.subscribe())
	b.use(1_000_000)
	b.move(36 * 24 * time.Hour)
	b.SendAll(b.p.core.out)
	if !slices.Equal(b.refused, []string{KindUsage}) {
		t.Fatal(b.refused)
	}
}

// However often and fast billing is switched on and off, and whatever is lost on the way, the last word holds and there
// is one subscription.
func TestBilling_LastSubscriptionChangeWins(t *testing.T) {
	t.Parallel()
	b := newTab(t, dbtest.New(t), "pm_card_visa")
	off := func(now bool) {
		b.do(func(ctx context.Context, tx *db.Tx) ([]id.Outbox, error) {
			return b.p.Invoices.Unsubscribe(ctx, tx, b.payer.Org, b.sub.ID, now)
		})
	}
	b.subscribe()
	b.subscribe()
	b.stripe.Faults.Fail(sandbox.Error500, sandbox.Error500, sandbox.Truncated, sandbox.Error500)
	b.SendAll(b.p.core.out)
	if b.sub.Status != "active" || len(b.stripe.Invoices.Of(b.customer())) != 1 {
		t.Fatalf("%+v %v", b.sub, b.stripe.Invoices.Of(b.customer()))
	}
	first := b.sub.ID
	off(false)
	b.subscribe()
	off(false)
	b.stripe.Faults.Fail(sandbox.Down, sandbox.Error500)
	b.SendAll(b.p.core.out)
	if b.sub.ID != first || !b.sub.Ending {
		t.Fatalf("%+v", b.sub)
	}
	b.subscribe()
	b.SendAll(b.p.core.out)
	if b.sub.ID != first || b.sub.Ending {
		t.Fatalf("%+v", b.sub)
	}
	b.use(2_000_000)
	b.SendAll(b.p.core.out)
	off(true)
	b.stripe.Faults.Fail(sandbox.Error500)
	b.SendAll(b.p.core.out)
	if b.sub.ID != first || b.sub.Status != "canceled" {
		t.Fatalf("%+v", b.sub)
	}
	for range 3 {
		b.refresh() // the last invoice
		b.SendAll(b.p.core.out)
		b.stripe.Billing.Run()
	}
	b.reconcile()
	b.even(200)
	b.subscribe()
	b.SendAll(b.p.core.out)
	if b.sub.ID == first || b.sub.Status != "active" {
		t.Fatalf("%+v", b.sub)
	}
}

// Another card may pay an invoice that the first did not; a bank that takes the payment back makes it owed again.
func TestBilling_CollectedAndDisputed(t *testing.T) {
	t.Parallel()
	b := newTab(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	b.p.core.out.SendNow(t.Context(), b.subscribe())
	b.use(5_000_000)
	b.SendAll(b.p.core.out)
	in := b.stripe.Billing.EndPeriod(b.customer())[0]
	b.refresh()
	b.SendAll(b.p.core.out)
	b.stripe.Billing.Run()
	collect := func() {
		b.do(func(ctx context.Context, tx *db.Tx) ([]id.Outbox, error) {
			return b.p.Invoices.Collect(ctx, tx, b.payer.Org, in)
		})
		b.SendAll(b.p.core.out)
	}
	collect()
	if !slices.Equal(b.refused, []string{KindCollect}) {
		t.Fatal(b.refused)
	}
	b.even(0)
	b.p.core.cfg.DefaultMethod = "pm_card_visa"
	collect()
	collect() // paid already
	b.reconcile()
	b.even(500)
	now, err := b.p.core.stripe.Invoice(t.Context(), in)
	if err != nil || now.Status != stripe.InvoicePaid {
		t.Fatalf("%+v %v", now, err)
	}
	dispute := b.stripe.Disputes.Open(now.Payment, 500)
	b.reconcile() // no event came
	b.even(0)
	b.stripe.Disputes.Decide(dispute, true)
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	b.reconcile()
	b.even(500)
}

// An invoice that a person makes by hand at Stripe for one of our customers pays nothing owed here: it goes to
// suspense.
func TestBilling_InvoiceMadeByHand(t *testing.T) {
	t.Parallel()
	b := newTab(t, dbtest.New(t), "pm_card_visa")
	b.p.core.out.SendNow(t.Context(), b.subscribe())
	b.use(5_000_000)
	b.SendAll(b.p.core.out)
	in := b.stripe.Billing.InvoiceByHand(b.customer(), "eur", 700)
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	if r := b.reconcile(); r.New != 1 || r.Matched != 0 {
		t.Fatalf("%+v", r)
	}
	b.Exec("UPDATE stripe_balance SET seen_at = seen_at - interval '2 hours'")
	if r := b.reconcile(); r.Suspense != 1 {
		t.Fatalf("%+v", r)
	}
	if _, seen := b.wanted[in]; seen {
		t.Fatal("the biller heard of it")
	}
	if owed, err := ledger.Balance(t.Context(), b.DB.Q, ledger.Receivable(b.payer.Org, "EUR")); err != nil ||
		owed != -5*money.Unit {
		t.Fatal(owed, err)
	}
}

// A card that is saved or chosen later pays what the earlier one did not, when Stripe tries again.
func TestBilling_DefaultCardPays(t *testing.T) {
	t.Parallel()
	b := newTab(t, dbtest.New(t), "")
	save := func(card string) CardSetup {
		t.Helper()
		x, _, err := b.p.Cards.Add(t.Context(), b.payer, "", idem.Request{})
		if err != nil {
			t.Fatal(err)
		}
		b.SendAll(b.p.core.out)
		row, err := b.DB.Q.OutboxByKey(t.Context(), "setup:"+x.ID.String())
		if err != nil || !b.stripe.Checkout.Pay(row.ResultID, card) {
			t.Fatal(err)
		}
		b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
		b.SendAll(b.p.core.out)
		return x
	}
	b.subscribe() // without a card
	b.SendAll(b.p.core.out)
	b.use(5_000_000)
	b.SendAll(b.p.core.out)
	in := b.stripe.Billing.EndPeriod(b.customer())[0]
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	b.SendAll(b.p.core.out)
	b.stripe.Billing.Run()
	tried := func(attempts int, status string) {
		t.Helper()
		got, err := b.p.core.stripe.Invoice(t.Context(), in)
		if err != nil || got.Status != status || got.Attempts != attempts {
			t.Fatalf("%+v %v", got, err)
		}
	}
	tried(1, stripe.InvoiceOpen)
	save("pm_card_chargeCustomerFail")
	b.move(73 * time.Hour)
	b.stripe.Billing.Run()
	tried(2, stripe.InvoiceOpen)
	save("pm_card_visa")
	cards, err := b.p.Cards.List(t.Context(), b.payer.Org)
	if err != nil || len(cards) != 2 {
		t.Fatal(cards, err)
	}
	if err := b.p.Cards.SetDefault(t.Context(), b.payer, cards[0].ID); err != nil {
		t.Fatal(err)
	}
	b.SendAll(b.p.core.out)
	b.move(73 * time.Hour)
	b.stripe.Billing.Run()
	tried(3, stripe.InvoicePaid)
	b.Deliver(b.in, b.stripe.Webhooks.Deliveries())
	b.reconcile()
	b.even(500)
}
