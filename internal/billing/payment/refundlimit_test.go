package payment

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func TestRefundLimit_Room(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	for name, c := range map[string]struct {
		limit money.Nano
		past  pastRefunds
		want  money.Nano
	}{
		"a new organisation":          {1000 * u, pastRefunds{}, 1000 * u},
		"a part went back":            {1000 * u, pastRefunds{recent: 300 * u, ever: 300 * u}, 700 * u},
		"all of the limit went back":  {1000 * u, pastRefunds{recent: 1000 * u, ever: 5000 * u}, 0},
		"it used more than the limit": {1000 * u, pastRefunds{recent: 1000 * u, ever: 1000 * u, used: 8000 * u}, 7000 * u},
		"it used less than went back": {1000 * u, pastRefunds{ever: 3000 * u, used: 2000 * u}, 1000 * u},
		"staff allowed more":          {1000 * u, pastRefunds{recent: 1000 * u, ever: 1000 * u, allowed: 50 * u}, 50 * u},
		"another shares its card":     {1000 * u, pastRefunds{recent: 300 * u, sameCards: 600 * u}, 100 * u},
		"parts of a cent":             {1000 * u, pastRefunds{used: 1500*u + 7}, 1500 * u},
		"no limit":                    {0, pastRefunds{recent: 1e6 * u}, 100 * MaxTopUp},
	} {
		if got := refundRoom(c.limit, c.past); got != c.want {
			t.Errorf("%s: %s instead of %s", name, got, c.want)
		}
	}
}

func TestRefundLimit_Payments(t *testing.T) {
	t.Parallel()
	rows := make([]dbq.RefundableTopupsRow, 30)
	for i := range rows {
		rows[i] = dbq.RefundableTopupsRow{Amount: money.Unit, Recent: i >= 25}
	}
	if got := len(inReach(money.Unit, pastRefunds{payments: 5}, rows)); got != 15+5 {
		t.Errorf("%d payments can be refunded instead of 20", got)
	}
	if got := len(inReach(money.Unit, pastRefunds{payments: 5, allowed: 1}, rows)); got != 30 {
		t.Errorf("staff allow all, and %d can be refunded", got)
	}
}

// An organisation that pays in and takes out in turns is stopped at the limit. What it uses is no part of that, and
// staff can let it take out the rest.
func TestRefundLimit_Amount(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	s.p.core.cfg.RefundLimit = 100 * u
	var out money.Nano
	var err error
	for range 5 {
		s.topUp(40 * u)
		if _, err = s.giveBack(40 * u); err != nil {
			break
		}
		out += 40 * u
	}
	if out != 80*u || !fault.Is(err, fault.QuotaExceeded) || !strings.Contains(err.Error(), "only 20.00 EUR") {
		t.Fatal(out, err)
	}
	if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); err != nil || n != 20*u {
		t.Fatal(n, err)
	}
	if _, err := s.giveBack(20 * u); err != nil {
		t.Fatal(err)
	}
	if _, err := s.giveBack(money.Cent); !fault.Is(err, fault.QuotaExceeded) {
		t.Fatal("beyond the limit:", err)
	}
	// What has been used pays for the fees: 150.00 used less 100.00 that went back.
	s.topUp(230 * u)
	s.spend(150 * u)
	if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); err != nil || n != 50*u {
		t.Fatal(n, err)
	}
	admin := account.Principal{User: id.New[id.User](), Admin: true}
	allow := func(who account.Principal, org id.Org, n money.Nano, why string) error {
		_, _, err := s.p.Refunds.Allow(t.Context(), who, org, n, why, idem.Request{})
		return err
	}
	if err := allow(s.payer, s.payer.Org, u, "mine"); !fault.Is(err, fault.Forbidden) {
		t.Fatal(err)
	}
	if err := allow(admin, s.payer.Org, u, " "); !fault.Is(err, fault.Invalid) {
		t.Fatal(err)
	}
	if err := allow(admin, id.New[id.Org](), u, "nobody"); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	s.must(allow(admin, s.payer.Org, 70*u, "leaves us"))
	if _, err := s.giveBack(70 * u); err != nil {
		t.Fatal(err)
	}
	s.level()
}

// Organisations that saved the same card share one limit: signing up again raises nothing.
func TestRefundLimit_SharedByCard(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "")
	s.p.core.cfg.RefundLimit = 100 * u
	payBy := func(card string) account.Principal {
		s.payer = account.Principal{Org: s.Org(), User: id.New[id.User](), Email: "a@b.c", OrgName: "o"}
		bought := s.topUp(80 * u)
		if !s.stripe.Checkout.Pay(s.session(topupKey(bought.ID)), card) {
			t.Fatal("not paid")
		}
		s.deliver(s.stripe.Webhooks.Deliveries())
		s.want(bought, Succeeded)
		return s.payer
	}
	payBy("pm_card_visa")
	if _, err := s.giveBack(80 * u); err != nil {
		t.Fatal(err)
	}
	second := payBy("pm_card_visa")
	if n, err := s.p.Refunds.Refundable(t.Context(), second.Org); err != nil || n != 20*u {
		t.Fatal("the second organisation of a card gets back", n, err)
	}
	_, err := s.giveBack(80 * u)
	if !fault.Is(err, fault.QuotaExceeded) || !strings.Contains(err.Error(), "saved the same card") {
		t.Fatal(err)
	}
	payBy("pm_card_mastercard")
	if _, err := s.giveBack(80 * u); err != nil {
		t.Fatal("another card has a limit of its own:", err)
	}
	s.level()
}
