package payment

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// session returns Stripe's object behind a row of the outbox.
func (s *shop) session(key string) (object string) {
	s.T.Helper()
	if err := s.DB.Pool.QueryRow(s.T.Context(), "SELECT result_id FROM stripe_outbox WHERE idem_key = $1",
		key).Scan(&object); err != nil {
		s.T.Fatal(err)
	}
	return object
}

// card saves a card on the page, as a payer does.
func (s *shop) card(method string) CardSetup {
	s.T.Helper()
	c, _, err := s.p.Cards.Add(s.T.Context(), s.payer, "", idem.Request{})
	if err != nil || c.State != Pending || c.URL == "" {
		s.T.Fatal(c, err)
	}
	s.stripe.Checkout.Pay(s.session("setup:"+c.ID.String()), method)
	if c, err = s.p.Cards.RefreshSetup(s.T.Context(), s.payer.Org, c.ID); err != nil {
		s.T.Fatal(err)
	}
	return c
}

func (s *shop) cards() []Card {
	s.T.Helper()
	list, err := s.p.Cards.List(s.T.Context(), s.payer.Org)
	if err != nil {
		s.T.Fatal(err)
	}
	return list
}

func TestCards_SaveChooseRemove(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	if c := s.card("pm_card_visa_chargeDeclined"); c.State != Pending || len(s.cards()) != 0 {
		t.Fatalf("%+v: another card may be tried", c)
	}
	if c := s.card("pm_card_visa"); c.State != Succeeded || c.URL != "" {
		t.Fatalf("%+v", c)
	}
	s.card("pm_card_mastercard")
	s.deliver(s.stripe.Webhooks.Deliveries()) // the webhooks repeat it
	list := s.cards()
	if len(list) != 2 || list[0].Brand != "mastercard" || list[0].Default || list[1].Last4 != "4242" || !list[1].Default {
		t.Fatalf("%+v", list)
	}
	var prints int
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT count(DISTINCT fingerprint) FROM payment_card WHERE org_id = $1",
		s.payer.Org).Scan(&prints); err != nil || prints != 2 {
		t.Fatalf("%d fingerprints of two cards, %v", prints, err)
	}
	s.want(s.topUp(5*money.Unit), Succeeded)
	paidWith := func() (m string) {
		t.Helper()
		if err := s.DB.Pool.QueryRow(t.Context(), `SELECT k.last4 FROM stripe_outbox o JOIN payment_card k ON k.method_id =
			o.params->>'method'
			ORDER BY o.id DESC LIMIT 1`).Scan(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if got := paidWith(); got != "4242" {
		t.Fatal(got)
	}
	r := TopUpRequest{Amount: 6 * money.Unit, Card: list[0].ID}
	top, _, err := s.p.TopUps.Create(t.Context(), s.payer, r, idem.Request{})
	if err != nil || top.State != Succeeded || paidWith() != "4444" {
		t.Fatal(top, err)
	}
	stranger := s.payer
	stranger.Org = s.Org()
	if _, _, err := s.p.TopUps.Create(t.Context(), stranger, TopUpRequest{
		Amount: 6 * money.Unit,
		Card:   list[0].ID,
	}, idem.Request{}); !fault.Is(err, fault.NotFound) {
		t.Fatal("another org's card", err)
	}
	if err := s.p.Cards.Remove(t.Context(), stranger, list[0].ID); !fault.Is(err, fault.NotFound) {
		t.Fatal("another org's card", err)
	}
	if err := s.p.Cards.SetDefault(t.Context(), stranger, list[0].ID); !fault.Is(err, fault.NotFound) {
		t.Fatal("another org's card", err)
	}
	if err := s.p.Cards.Remove(t.Context(), s.payer, list[1].ID); err != nil {
		t.Fatal(err)
	}
	if list = s.cards(); len(list) != 1 || !list[0].Default {
		t.Fatalf("the other card pays now: %+v", list)
	}
	s.want(s.topUp(5*money.Unit), Succeeded)
	if got := paidWith(); got != "4444" {
		t.Fatal(got)
	}
	s.square(3)
}

// A bank that wants to ask the payer is answered on its page, wherever the payment was begun; nothing is credited
// before.
func TestTopUp_BankAuthentication(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	s.card("pm_card_authenticationRequired")
	yes, no, never := s.topUp(2*money.Unit), s.topUp(3*money.Unit), s.topUp(4*money.Unit)
	for _, x := range []TopUp{yes, no, never} {
		if x.State != Pending || x.ActionURL != "http://pay.test/3ds/"+s.session(topupKey(x.ID)) {
			t.Fatalf("%+v", x)
		}
	}
	s.square(0)
	s.stripe.Payments.Authenticate(s.session(topupKey(yes.ID)), true)
	s.stripe.Payments.Authenticate(s.session(topupKey(no.ID)), false)
	got, err := s.p.TopUps.Refresh(t.Context(), s.payer.Org, yes.ID) // the payer comes back before any webhook
	if err != nil || got.State != Succeeded || got.ActionURL != "" || got.ReceiptURL == "" {
		t.Fatalf("%+v %v", got, err)
	}
	s.deliver(s.stripe.Webhooks.Deliveries())
	if got := s.want(no, Failed); got.Failure == "" {
		t.Fatal("no reason")
	}
	s.square(1)
	// A day later the payer has not answered: the payment is given up and can no longer be paid.
	s.Exec("UPDATE topup SET created_at = created_at - interval '25 hours'")
	if _, err := s.p.TopUps.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.SendAll(s.p.core.out)
	s.want(never, Canceled)
	if s.stripe.Payments.Authenticate(s.session(topupKey(never.ID)), true) {
		t.Fatal("a cancelled payment was paid")
	}
	s.square(1)
}

// The payer answers just as the payment is given up: Stripe's result counts.
func TestTopUp_LateSuccess(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	s.card("pm_card_authenticationRequired")
	top := s.topUp(2 * money.Unit)
	s.Exec("UPDATE topup SET created_at = created_at - interval '25 hours'")
	if _, err := s.p.TopUps.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.stripe.Payments.Authenticate(s.session(topupKey(top.ID)), true)
	s.SendAll(s.p.core.out)
	s.want(top, Succeeded)
	s.square(1)
}

// Receipts come with the first word of Stripe after the payment.
func TestReceipts(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	top := s.want(s.topUp(2*money.Unit), Succeeded)
	s.deliver(s.stripe.Webhooks.Deliveries())
	if got := s.want(top, Succeeded); got.ReceiptURL == "" {
		t.Fatal("no receipt")
	}
	s.square(1)
}

func TestCards_PagesLimited(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	for range maxOpenSetups {
		if _, _, err := s.p.Cards.Add(t.Context(), s.payer, "", idem.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.p.Cards.Add(t.Context(), s.payer, "", idem.Request{})
	if f := fault.From(err); f == nil || f.Kind != fault.RateLimited || f.RetryAfter < time.Second {
		t.Fatal(err)
	}
}
