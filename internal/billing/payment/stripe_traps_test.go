package payment

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// A payment page takes cards only, whatever is switched on in Stripe's dashboard.
func TestCheckout_CardsOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	page := s.session(topupKey(s.topUp(9 * money.Unit).ID))
	if s.stripe.Checkout.Pay(page, "pm_sepa") {
		t.Error("a debit that takes days was accepted")
	}
	if !s.stripe.Checkout.Pay(page, "pm_card_visa") {
		t.Error("a card was not accepted")
	}
}

// refundOf gives all of the wallet back and is Stripe's id of the refund.
func (s *shop) refundOf(amount money.Nano) (Refund, string) {
	s.T.Helper()
	made, _, err := s.p.Refunds.GiveBack(s.T.Context(), s.payer, amount, idem.Request{})
	if err != nil || len(made) != 1 {
		s.T.Fatal(made, err)
	}
	all := s.stripe.Refunds.IDs()
	return made[0], all[len(all)-1]
}

func (s *shop) refundNow(r Refund) Refund {
	s.T.Helper()
	all, err := s.p.Refunds.these(s.T.Context(), s.payer.Org, []id.Refund{r.ID})
	if err != nil || len(all) != 1 {
		s.T.Fatal(all, err)
	}
	return all[0]
}

// A refund may wait at Stripe and then be made, or fail without ever having left Stripe's balance: then nothing of it
// is booked against that balance, and the money is in the wallet again.
func TestRefund_Pending(t *testing.T) {
	t.Parallel()
	for _, well := range []bool{true, false} {
		s := newShop(t, "pm_card_pendingRefund")
		s.topUp(10 * money.Unit)
		s.level()
		r, re := s.refundOf(10 * money.Unit)
		if got := s.refundNow(r); got.State != Pending || s.wallet() != 0 {
			t.Fatalf("%s, wallet %s", got.State, s.wallet())
		}
		s.level()
		s.stripe.Refunds.Finish(re, well)
		s.deliver(s.stripe.Webhooks.Deliveries())
		got, want, wallet := s.refundNow(r), Succeeded, money.Nano(0)
		if !well {
			want, wallet = Failed, 10*money.Unit
		}
		if got.State != want || s.wallet() != wallet || s.balanceOf(ledger.Refunds("EUR")) != 0 {
			t.Errorf("well %t: %s, wallet %s, on its way %s", well, got.State, s.wallet(), s.balanceOf(ledger.Refunds("EUR")))
		}
		s.level()
		var moved int
		if err := s.DB.Pool.QueryRow(t.Context(),
			"SELECT count(*) FROM ledger_tx WHERE kind = 'refund_paid'").Scan(&moved); err != nil || (moved == 1) != well {
			t.Errorf("well %t: %d entries of a refund that left Stripe's balance (%v)", well, moved, err)
		}
	}
}

// A refund that Stripe has no money for waits there, and is made once there is some.
func TestRefund_WaitsForFunds(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.stripe.Refunds.NeedFunds()
	s.topUp(10 * money.Unit) // of which Stripe keeps its fee
	r, re := s.refundOf(10 * money.Unit)
	if got := s.refundNow(r); got.State != Pending {
		t.Fatal(got.State)
	}
	s.stripe.Balance.Stray("topup", "eur", 100)
	s.stripe.Refunds.Finish(re, true)
	s.deliver(s.stripe.Webhooks.Deliveries())
	if got := s.refundNow(r); got.State != Succeeded {
		t.Fatal(got.State)
	}
}

// A key that was used with other parameters is no refusal: what was done under it is looked up.
func TestOutbox_ReusedKeyLookedUp(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(money.Unit) // the customer is made
	s.stripe.Faults.Fail("error_500")
	charged := s.topUp(8 * money.Unit) // the outcome is unknown
	s.Exec(`UPDATE stripe_outbox SET params = jsonb_set(params, '{description}', '"another version''s words"') WHERE
		idem_key = $1`, topupKey(charged.ID))
	s.SendAll(s.p.core.out)
	s.want(charged, Succeeded)
	s.square(2)

	// Nothing is found, and the first request may still be running: the top-up is not called failed for an hour.
	s.stripe.Faults.Fail("down")
	lost := s.topUp(3 * money.Unit)
	customer := ""
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT customer_id FROM stripe_customer").Scan(&customer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.p.core.stripe.CreatePayment(t.Context(), topupKey(lost.ID), stripe.NewPayment{
		TopUp:    "another",
		Customer: customer,
		Method:   "pm_card_visa",
		Cents:    300,
		Currency: "EUR",
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		if _, err := s.p.core.out.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.want(lost, Pending)
	s.Exec("UPDATE stripe_outbox SET first_sent_at = first_sent_at - interval '61 minutes' WHERE idem_key = $1",
		topupKey(lost.ID))
	s.SendAll(s.p.core.out)
	s.want(lost, Failed)
}

// A bank's inquiry takes no money. Escalated it is a dispute like others; closed, all is as before.
func TestDispute_Inquiry(t *testing.T) {
	t.Parallel()
	for _, disputed := range []bool{true, false} {
		s := newShop(t, "pm_card_visa")
		pi := s.paymentOf(s.topUp(10 * money.Unit))
		dp := s.stripe.Disputes.Inquire(pi, 1000)
		s.deliver(s.stripe.Webhooks.Deliveries())
		s.level()
		s.stripe.Disputes.Escalate(dp, disputed)
		s.deliver(s.stripe.Webhooks.Deliveries())
		if disputed {
			s.stripe.Disputes.Decide(dp, false)
			s.deliver(s.stripe.Webhooks.Deliveries())
		}
		s.level()
		want := 10 * money.Unit
		if disputed {
			want = 0
		}
		if s.wallet() != want || s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")) != 0 {
			t.Errorf("disputed %t: wallet %s, set aside %s", disputed, s.wallet(),
				s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")))
		}
	}
}

// A dispute that was prevented is over: lost when it took money, else as if it had not been.
func TestDispute_Prevented(t *testing.T) {
	t.Parallel()
	for back, want := range map[int64]money.Nano{1000: 0, 0: 10 * money.Unit} {
		s := newShop(t, "pm_card_visa")
		s.stripe.Disputes.Prevent(s.paymentOf(s.topUp(10*money.Unit)), 1000, back)
		s.deliver(s.stripe.Webhooks.Deliveries())
		s.level()
		if s.wallet() != want || s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")) != 0 {
			t.Errorf("%d cents given back: wallet %s, set aside %s", back, s.wallet(),
				s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")))
		}
	}
}

func (s *shop) paymentOf(x TopUp) (pi string) {
	s.T.Helper()
	if err := s.DB.Pool.QueryRow(s.T.Context(), "SELECT payment_intent_id FROM topup WHERE id = $1",
		x.ID).Scan(&pi); err != nil {
		s.T.Fatal(err)
	}
	return pi
}

// An early fraud warning stops auto top-up, and administrators learn of it once.
func TestFraudWarning_StopsAutoTopUp(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	boss := s.Admin().Org
	pi := s.paymentOf(s.topUp(10 * money.Unit))
	s.wish(AutoTopUp{Enabled: true, Threshold: 5 * money.Unit, Amount: 10 * money.Unit, DailyCap: 10 * money.Unit})
	s.stripe.Warnings.Warn(pi)
	ds := s.stripe.Webhooks.Deliveries()
	s.deliver(append(ds, ds...))
	a, err := s.p.AutoTopUps.Get(t.Context(), s.payer.Org)
	if told := s.noticeTitles(boss, "fraud_warning:"); err != nil || a.Enabled || len(told) != 1 ||
		!strings.Contains(told[0], pi) {
		t.Errorf("%+v, told %q, %v", a, told, err)
	}
}

// Stripe accepts reports of usage first and refuses them later, by an event of its version 2.
func TestMeterErrors_NotifyAdmins(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	boss := s.Admin().Org
	if _, err := s.p.core.stripe.CreateMeter(t.Context(), "m", stripe.UsageMeter, "usage"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.p.core.stripe.SendUsage(t.Context(), stripe.UsageEvent{
			Identifier: id.New[id.LedgerTx]().String(),
			Customer:   "cus_gone",
			Value:      5,
			At:         time.Now(),
		}); err != nil {
			t.Fatal("refused at once:", err)
		}
	}
	s.deliver(s.stripe.Webhooks.Deliveries())
	if told := s.noticeTitles(boss, "meter_errors:"); len(told) != 1 { // over midnight twice
		t.Errorf("told %q", told)
	}
}
