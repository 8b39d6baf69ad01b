package payout

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// openDispute opens a dispute of a top-up at Stripe and delivers Stripe's events about it.
func (x *admin) openDispute(payment string, amount money.Nano) (dispute string) {
	x.T.Helper()
	if dispute = x.fake.Disputes.Open(payment, int64(amount/money.Cent)); dispute == "" {
		x.T.Fatal("the payment cannot be disputed")
	}
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
	return dispute
}

func (x *admin) intent(topup id.TopUp) (pi string) {
	x.T.Helper()
	if err := x.DB.Pool.QueryRow(x.T.Context(), "SELECT payment_intent_id FROM topup WHERE id = $1",
		topup).Scan(&pi); err != nil {
		x.T.Fatal(err)
	}
	return pi
}

// What was earned from a payment that its card's owner got back stays with the platform until a person has decided.
func TestReview_LostDispute(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	for _, paid := range []bool{false, true} { // whether it was payable already when the dispute opened
		x := funded(t, 500*u)
		x.other(30 * u) // another renter's
		x.payable()
		x.payDue()
		x.sent("before", 1, 30*u)
		top := x.topUp(100 * u)
		x.earn(85 * u)
		if paid {
			x.payable()
		}
		dp := x.openDispute(x.intent(top.ID), 100*u)
		x.payable()
		x.payDue()
		x.sent("while it is open", 1, 30*u)
		x.fake.Disputes.Decide(dp, false)
		x.Deliver(x.in, x.fake.Webhooks.Deliveries())
		if x.payDue(); !paid { // before anything matures again
			x.payable()
		}
		x.payable()
		x.payDue()
		x.sent("lost", 1, 30*u)
		r := x.review()
		if r.InReview != 85*u || len(r.Reasons) != 1 || r.Reasons[0] != "lost_dispute" || r.Advice != AdviseRefuse ||
			r.Limit == nil || *r.Limit != 100*u {
			t.Fatalf("paid %t: %+v", paid, r)
		}
		// Later earnings from the same renter are held up to what was lost, and no further.
		x.earn(40 * u)
		x.payable()
		if r = x.review(); r.InReview != 100*u {
			t.Fatalf("%+v", r)
		}
		x.payDue()
		x.sent("beyond what was lost", 2, 55*u)
		if err := billingtest.Err(x.p.RefuseReview(x.T.Context(), x.boss, r.ID, "a stolen card",
			idem.Request{})); err != nil {
			t.Fatal(err)
		}
		x.earn(20 * u)
		x.payable()
		x.payDue()
		x.sent("after the decision", 3, 75*u)
		if b, err := ledger.Check(t.Context(), x.DB); err != nil || !b.Balanced() {
			t.Fatal(b.Problems, err)
		}
	}
}

func TestReview_AdviceOnLostDispute(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		age          time.Duration
		earned, from money.Nano
		want         Advice
	}{
		{10 * day, 1000, 10, AdviseRefuse},
		{200 * day, 1000, 10, AdviseRelease},
		{200 * day, 1000, 501, AdviseRefuse},
		{200 * day, 0, 0, AdviseRelease},
	} {
		if got := adviceOn(c.age, c.earned*money.Unit, c.from*money.Unit); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestHoldback_NewOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.earn(10)
	h := Holdback{Usual: 0, New: 30 * 24 * time.Hour}
	if _, err := MatureAfter(t.Context(), w.DB, h); err != nil {
		t.Fatal(err)
	}
	w.want("a new operator", 10, 0)
	if _, err := w.DB.Pool.Exec(t.Context(), "UPDATE ledger_account SET created_at = created_at - interval '91 days' "+
		"WHERE kind = 'host_pending'"); err != nil {
		t.Fatal(err)
	}
	if _, err := MatureAfter(t.Context(), w.DB, h); err != nil {
		t.Fatal(err)
	}
	w.want("three months later", 0, 10)
}
