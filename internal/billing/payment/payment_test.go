package payment

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const secret = billingtest.Secret

// shop is a platform with a payer and a Stripe.
type shop struct {
	*billingtest.World
	p      *Payments
	in     *events.Inbox
	rec    *reconcile.Reconciler
	stripe *billingtest.Stripe
	payer  account.Principal
}

func newShop(t testing.TB, method string) *shop {
	t.Helper()
	return newShopOn(t, dbtest.New(t), method)
}

func newShopOn(t testing.TB, d *db.DB, method string) *shop {
	t.Helper()
	return newShopWith(t, d, method, billingtest.Patience)
}

// newShopWith is newShopOn with a client that waits for an answer as long as patience.
func newShopWith(t testing.TB, d *db.DB, method string, patience time.Duration) *shop {
	t.Helper()
	w := billingtest.New(t, d)
	return newShopAt(w, w.Stripe(nil, patience), method)
}

// newShopAt is a shop whose payments go through fake.
func newShopAt(w *billingtest.World, fake *billingtest.Stripe, method string) *shop {
	w.T.Helper()
	log := slog.New(slog.DiscardHandler)
	in := events.New(w.DB, fake.Client, log)
	p, err := New(w.DB, outbox.New(w.DB, fake.Client, log), in, Config{
		Currency:      "EUR",
		DefaultMethod: method,
		ReturnURL:     "http://muster.test/billing",
		Sandbox:       true,
	}, log)
	if err != nil {
		w.T.Fatal(err)
	}
	rec := reconcile.New(w.DB, fake.Client, in.Refresh, "EUR", log)
	s := &shop{World: w, p: p, in: in, rec: rec, stripe: fake}
	s.payer = account.Principal{Org: w.Org(), User: id.New[id.User](), Email: "a@b.c", OrgName: "o"}
	return s
}

func (s *shop) topUp(amount money.Nano) TopUp {
	s.T.Helper()
	t, _, err := s.p.TopUps.Create(context.Background(), s.payer, TopUpRequest{Amount: amount}, idem.Request{})
	if err != nil {
		s.T.Fatal(err)
	}
	return t
}

func (s *shop) get(t TopUp) TopUp {
	s.T.Helper()
	t, err := s.p.TopUps.Get(context.Background(), s.payer.Org, t.ID)
	if err != nil {
		s.T.Fatal(err)
	}
	return t
}

func (s *shop) deliver(ds []sandbox.Delivery) {
	s.T.Helper()
	for _, d := range ds {
		if err := s.in.Receive(context.Background(), d.Payload, d.Signature); err != nil {
			s.T.Fatal(err)
		}
	}
	if _, err := s.in.Process(context.Background()); err != nil {
		s.T.Fatal(err)
	}
}

func (s *shop) wallet() money.Nano {
	s.T.Helper()
	n, err := ledger.Balance(context.Background(), s.DB.Q, ledger.Wallet(s.payer.Org, "EUR"))
	if err != nil {
		s.T.Fatal(err)
	}
	return n
}

// square asserts that the card was charged so often, and that the wallet has exactly what was charged.
func (s *shop) square(times int) {
	s.T.Helper()
	n, cents := s.stripe.Charges.Total()
	if n != times || s.wallet() != money.Nano(cents)*money.Cent {
		s.T.Fatalf("charged %d times, %d cents; wallet %s; want %d times", n, cents, s.wallet(), times)
	}
	b, err := ledger.Check(context.Background(), s.DB)
	if err != nil || !b.Balanced() {
		s.T.Fatal(b.Problems, err)
	}
}

func (s *shop) want(t TopUp, state State) TopUp {
	s.T.Helper()
	t = s.get(t)
	if t.State != state {
		s.T.Fatalf("top-up is %s (%s), want %s", t.State, t.Failure, state)
	}
	return t
}

func TestTopUp_Succeeds(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	key := idem.Request{Principal: "user:x", Method: "POST", Path: "/billing/topups", Key: "k", BodyHMAC: []byte("b")}
	first, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{Amount: 25 * money.Unit}, key)
	if err != nil || first.State != Succeeded || !first.Sandbox || first.SettledAt == nil {
		t.Fatal(first, err)
	}
	again, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{Amount: 25 * money.Unit}, key)
	if err != nil || again.ID != first.ID || again.State != Succeeded {
		t.Fatal(again, err)
	}
	s.square(1)
	s.want(s.topUp(money.Unit), Succeeded)
	s.square(2)
	list, err := s.p.TopUps.List(t.Context(), s.payer.Org, id.TopUp{}, 10)
	if err != nil || len(list) != 2 || list[1].ID != first.ID {
		t.Fatal(list, err)
	}
	if _, err := s.p.TopUps.Get(t.Context(), id.New[id.Org](), first.ID); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	// The webhook that comes later changes nothing.
	s.deliver(s.stripe.Webhooks.Deliveries())
	s.square(2)
}

func TestTopUp_AmountOutOfRange(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	for _, n := range []money.Nano{0, -money.Unit, money.Unit - 1, money.Unit + 1, money.Unit + money.Cent/10,
		MaxTopUp + money.Cent} {
		if _, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{Amount: n}, idem.Request{}); !fault.Is(err,
			fault.Invalid) {
			t.Errorf("%s: %v", n, err)
		}
	}
	s.square(0)
}

func TestTopUp_DeclinedCard(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for _, c := range []struct {
		method string
		amount money.Nano
		want   string
	}{
		{"pm_card_visa_chargeDeclined", 5 * money.Unit, "Your card was declined."},
		{"pm_card_chargeCustomerFail", 5 * money.Unit, "Your card was declined."},
		{"pm_card_visa", 4000*money.Unit + 95*money.Cent, "Your card has insufficient funds."},
		{"pm_card_visa", 4000*money.Unit + 69*money.Cent, "Your card has expired."},
	} {
		s := newShopOn(t, d, c.method)
		if got := s.want(s.topUp(c.amount), Failed); got.Failure != c.want {
			t.Errorf("%+v: %q", c, got.Failure)
		}
		s.deliver(s.stripe.Webhooks.Deliveries())
		s.SendAll(s.p.core.out) // it is final: nothing is tried again
		s.square(0)
		var notices int
		if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1",
			s.payer.Org).Scan(&notices); err != nil || notices != 1 {
			t.Error(notices, err)
		}
		s.p.core.cfg.DefaultMethod = "pm_card_visa"
		s.want(s.topUp(money.Unit), Succeeded) // the next try is a new one
	}
}

// Events in any order, repeated or lost, with the poller behind them: the same books.
func TestWebhook_AnyOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	d := dbtest.New(t)
	for range 6 {
		s := newShopOn(t, d, "pm_slow")
		good, bad := s.topUp(2*money.Unit), s.topUp(3*money.Unit)
		for _, x := range []TopUp{good, bad} {
			s.want(x, Pending)
			var pi string
			if err := d.Pool.QueryRow(t.Context(), "SELECT payment_intent_id FROM topup WHERE id = $1",
				x.ID).Scan(&pi); err != nil {
				t.Fatal(err)
			}
			s.stripe.Payments.Finish(pi, x.ID == good.ID)
		}
		ds := s.stripe.Webhooks.Deliveries()
		ds = append(ds, ds...)
		r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
		s.deliver(ds[:r.IntN(len(ds)+1)])
		if _, err := s.p.TopUps.poll(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		s.want(good, Succeeded)
		if got := s.want(bad, Failed); got.Failure != "Your card was declined." {
			t.Fatal(got.Failure)
		}
		if n, _ := s.stripe.Charges.Total(); n != 1 || s.wallet() != 2*money.Unit {
			t.Fatalf("charged %d times, wallet %s", n, s.wallet())
		}
		s.deliver(ds)
	}
}

func TestCheckout_SavesCard(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	first := s.topUp(9 * money.Unit)
	if s.want(first, Pending).CheckoutURL == "" {
		t.Fatal("no page to pay on")
	}
	session := func(x TopUp) (cs string) {
		if err := s.DB.Pool.QueryRow(t.Context(), "SELECT result_id FROM stripe_outbox WHERE idem_key = $1",
			topupKey(x.ID)).Scan(&cs); err != nil {
			t.Fatal(err)
		}
		return cs
	}
	if s.stripe.Checkout.Pay(session(first), "pm_card_visa_chargeDeclined") {
		t.Fatal("a bad card paid")
	}
	s.deliver(s.stripe.Webhooks.Deliveries())
	s.want(first, Pending) // another card may be tried
	if !s.stripe.Checkout.Pay(session(first), "pm_card_visa") {
		t.Fatal("not paid")
	}
	s.deliver(s.stripe.Webhooks.Deliveries())
	if got := s.want(first, Succeeded); got.CheckoutURL != "" {
		t.Fatal("a paid page is still offered")
	}
	s.want(s.topUp(2*money.Unit), Succeeded) // with the saved card, at once
	s.square(2)

	other := newShopOn(t, s.DB, "")
	left := other.topUp(money.Unit)
	other.stripe.Checkout.Expire(session(left))
	other.deliver(other.stripe.Webhooks.Deliveries())
	other.want(left, Canceled)
}

func TestWebhook_Verified(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(money.Unit)
	d := s.stripe.Webhooks.Deliveries()[0]
	now := time.Now()
	for name, sig := range map[string]string{
		"none":       "",
		"no time":    "v1=00",
		"bad time":   "t=x,v1=00",
		"other key":  sandbox.Sign(d.Payload, "whsec_other", now),
		"old":        sandbox.Sign(d.Payload, secret, now.Add(-6*time.Minute)),
		"future":     sandbox.Sign(d.Payload, secret, now.Add(6*time.Minute)),
		"two times":  sandbox.Sign(d.Payload, secret, now.Add(-time.Hour)) + fmt.Sprintf(",t=%d", now.Unix()),
		"tampered":   sandbox.Sign([]byte(`{"id":"evt_1"}`), secret, now),
		"very old":   sandbox.Sign(d.Payload, secret, time.Unix(0, 0)),
		"far future": sandbox.Sign(d.Payload, secret, now.Add(1000*time.Hour)),
	} {
		if err := s.in.Receive(t.Context(), d.Payload, sig); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, body := range []string{`{}`, `[`, `{"id":"evt_1","type":"x","data":{"object":{}}}`,
		`{"id":"evt_1","type":"x"}`} {
		if err := s.in.Receive(t.Context(), []byte(body), sandbox.Sign([]byte(body), secret, now)); !fault.Is(err,
			fault.Invalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
	// Another API version, and objects of no concern or unknown, are taken and lead to nothing.
	for i, object := range []string{"cus_1", "pi_gone", "cs_gone"} {
		body := fmt.Appendf(nil,
			`{"id":"evt_%d","type":"x","api_version":"2020-01-01","created":1,"data":{"object":{"id":%q}}}`, i, object)
		s.deliver([]sandbox.Delivery{{Payload: body, Signature: sandbox.Sign(body, secret, now)}})
	}
	var open int
	if err := s.DB.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM stripe_event WHERE processed_at IS NULL").Scan(&open); err != nil || open != 0 {
		t.Fatal(open, err)
	}
	s.square(1)
}
