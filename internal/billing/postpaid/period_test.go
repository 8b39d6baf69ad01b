package postpaid

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// A lease whose report came too late for the period it ran in is in the next one, with the time at which it ran; the
// lines add up to what was booked.
func TestPeriod_LateUsage(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := newWorld(t, d)
	if _, err := w.p.Lines(t.Context(), w.org, ""); err == nil || fault.From(err).Kind != fault.NotFound {
		t.Error(err)
	}
	l := meteringtest.New(t, d, w.org, w.operator, eur)
	w.set(Change{On: true, Limit: 100 * money.Unit, Reason: "trusted"})
	w.SendAll(w.p.out) // the period begins after the lease ran, half an hour ago
	l.Run(300_000)
	cost, _ := meteringtest.Cost(300_000)
	w.Exec("UPDATE postpaid_org SET period_start = clock_timestamp() - interval '10 minutes', period_end = " +
		"clock_timestamp() + interval '20 days'")
	got, err := w.p.Lines(t.Context(), w.org, "")
	if err != nil || len(got.Items) != 1 {
		t.Fatalf("%+v %v", got, err)
	}
	x := got.Items[0]
	if x.Lease != l.ID || x.Cluster != l.Cluster || x.Amount != cost || !x.Late ||
		x.RanTo.Sub(*x.RanFrom) != 300*time.Second || got.Used != cost || got.Charged != 0 {
		t.Errorf("%+v", got)
	}

	// Its own money, 100 that was paid in, counted first: nothing is billed. What it uses beyond that is.
	hold := ledger.Hold(w.org, id.New[id.Cluster](), eur)
	for _, err := range []error{
		w.Post("authorise", ledger.Transfer{Debit: ledger.Wallet(w.org, eur), Credit: hold, Amount: 150 * money.Unit}),
		w.Post("usage", ledger.Transfer{Debit: hold, Credit: ledger.HostPending(w.operator, eur), Amount: 120 * money.Unit}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if p, err := w.p.Running(t.Context(), w.org); err != nil || p.Charged != 0 || p.Unbilled != 20*money.Unit+cost {
		t.Errorf("%+v %v", p, err)
	}
	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		t.Fatal(err)
	}
	if p, err := w.p.Running(t.Context(), w.org); err != nil || p.Charged != 20*money.Unit+cost || p.Unbilled != 0 {
		t.Errorf("%+v %v", p, err)
	}
	if now := w.terms(); now.Used != 50*money.Unit+cost || now.Left != 50*money.Unit-cost {
		t.Errorf("%+v", now)
	}
	w.MustBalance()
}

// Only what the card did not pay can be paid, and only by who owes it.
func TestInvoice_Pay(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	w.set(Change{On: true, Limit: 50 * money.Unit, Reason: "trusted"})
	w.SendAll(w.p.out)
	hold := ledger.Hold(w.org, id.New[id.Cluster](), eur)
	for _, err := range []error{
		w.Post("authorise", ledger.Transfer{Debit: ledger.Wallet(w.org, eur), Credit: hold, Amount: 30 * money.Unit}),
		w.Post("usage", ledger.Transfer{Debit: hold, Credit: ledger.HostPending(w.operator, eur), Amount: 10 * money.Unit}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		t.Fatal(err)
	}
	w.SendAll(w.p.out)
	w.pass(time.Minute)
	draft := w.fake.Billing.EndPeriod(w.customer())[0]
	w.settle()
	pay := func(org id.Org, invoice string) error {
		return billingtest.Err(w.p.Pay(t.Context(), org, invoice, idem.Request{}))
	}
	if err := pay(w.operator, draft); err == nil || fault.From(err).Kind != fault.NotFound {
		t.Error("another's invoice:", err)
	}
	if err := pay(w.org, draft); err != nil {
		t.Error(err)
	}
	w.settle()
	if w.terms().Stopped == "" {
		t.Error("a card that never pays has paid")
	}
	if !w.fake.Invoices.PayHere(draft, "pm_card_visa") {
		t.Fatal("the page takes no card")
	}
	w.settle()
	if err := pay(w.org, draft); err == nil || fault.From(err).Kind != fault.Conflict {
		t.Error("a paid one:", err)
	}
	all, err := w.p.Invoices(t.Context(), w.org, 10)
	if err != nil || len(all) != 1 || all[0].State != "paid" || all[0].Total != 10*money.Unit || all[0].Number == "" ||
		all[0].URL == "" {
		t.Errorf("%+v %v", all, err)
	}
}

// A subscription that ends in the second in which it was renewed has two periods with one end. What the earlier one
// billed is not billed again, however Stripe's ids sort.
func TestPeriod_SameEndBilledOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t))
	w.set(Change{On: true, Limit: 50 * money.Unit, Reason: "trusted"})
	end := time.Now().Truncate(time.Second)
	if err := w.DB.Q.SavePostpaidInvoice(t.Context(), dbq.SavePostpaidInvoiceParams{
		ID:          "in_z",
		OrgID:       w.org,
		Currency:    eur,
		State:       stripe.InvoicePaid,
		PeriodStart: end.Add(-time.Hour),
		PeriodEnd:   end,
		MadeAt:      end,
		Due:         1000,
		Total:       1000,
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"in_a", "in_zz"} {
		got, err := w.DB.Q.PostpaidInvoicedBefore(t.Context(), dbq.PostpaidInvoicedBeforeParams{
			OrgID:       w.org,
			PeriodStart: end,
			PeriodEnd:   end,
			ID:          id,
		})
		if err != nil || got.Net != 1000 {
			t.Errorf("%s: %d cents were billed before: %v", id, got.Net, err)
		}
		got, err = w.DB.Q.PostpaidInvoicedBefore(t.Context(), dbq.PostpaidInvoicedBeforeParams{
			OrgID:       w.org,
			PeriodStart: end.Add(-2 * time.Hour),
			PeriodEnd:   end.Add(-time.Hour),
			ID:          id,
		})
		if err != nil || got.Net != 0 {
			t.Errorf("%s, the period before: %d cents were billed before: %v", id, got.Net, err)
		}
	}
}
