package payment

import (
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// limited returns a shop where the unverified may add 25.
func limited(t *testing.T, method string) *shop {
	t.Helper()
	s := newShop(t, method)
	s.p.core.cfg.UnverifiedLimit = 25 * money.Unit
	s.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, 'a@b.c', 'x')", s.payer.User)
	s.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", s.payer.Org, s.payer.User)
	return s
}

func (s *shop) verifyEmail() {
	s.T.Helper()
	s.Exec("UPDATE app_user SET email_verified_at = clock_timestamp()")
}

func (s *shop) add(amount money.Nano) error {
	_, _, err := s.p.TopUps.Create(s.T.Context(), s.payer, TopUpRequest{Amount: amount}, idem.Request{})
	return err
}

func TestLimit_Unverified(t *testing.T) {
	t.Parallel()
	s := limited(t, "pm_card_visa")
	if err := s.add(25*money.Unit + money.Cent); !fault.Is(err, fault.QuotaExceeded) ||
		!strings.Contains(err.Error(), "confirm your e-mail address") || !strings.Contains(err.Error(), "25.00 EUR") {
		t.Fatal(err)
	}
	if err := s.add(20 * money.Unit); err != nil {
		t.Fatal(err)
	}
	st, err := s.p.Standings.Of(t.Context(), s.payer.Org)
	if err != nil || st.Left == nil || *st.Left != 5*money.Unit || st.Added != 20*money.Unit || st.EmailVerified {
		t.Fatalf("%+v %v", st, err)
	}
	if err := s.add(6 * money.Unit); !fault.Is(err, fault.QuotaExceeded) {
		t.Fatal(err)
	}
	s.verifyEmail()
	s.deliver(s.stripe.Webhooks.Deliveries())
	if st, err = s.p.Standings.Of(t.Context(), s.payer.Org); err != nil || !st.EmailVerified {
		t.Fatalf("%+v %v", st, err)
	}
	if !st.CardVerified {
		if err := s.add(6 * money.Unit); !fault.Is(err, fault.QuotaExceeded) || strings.Contains(err.Error(), "e-mail") ||
			!strings.Contains(err.Error(), "save a card") {
			t.Fatal(err)
		}
		s.Exec(`INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year)
			VALUES (gen_random_uuid(), $1, 'pm_x', 'visa', '4242', 1, 2099)`, s.payer.Org)
	}
	if err := s.add(1000 * money.Unit); err != nil {
		t.Fatal(err)
	}
	if st, err = s.p.Standings.Of(t.Context(), s.payer.Org); err != nil || st.Limit != nil || st.Left != nil {
		t.Fatalf("%+v %v", st, err)
	}
}

// Many at once add no more than one after the other.
func TestLimit_Concurrent(t *testing.T) {
	t.Parallel()
	s := limited(t, "pm_card_visa")
	if err := s.add(money.Unit); err != nil { // the customer exists from here on
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.add(10 * money.Unit); err != nil && !fault.Is(err, fault.QuotaExceeded) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if st, err := s.p.Standings.Of(t.Context(), s.payer.Org); err != nil || st.Added != 21*money.Unit {
		t.Fatalf("%+v %v", st, err)
	}
}

func TestLimit_StopsAutoTopUp(t *testing.T) {
	t.Parallel()
	s := limited(t, "pm_card_visa")
	if err := s.add(money.Unit); err != nil {
		t.Fatal(err)
	}
	if err := s.p.AutoTopUps.Set(t.Context(), s.payer, AutoTopUp{
		Enabled:   true,
		Threshold: 100 * money.Unit,
		Amount:    25 * money.Unit,
		DailyCap:  100 * money.Unit,
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.p.AutoTopUps.Run(t.Context()); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	a, err := s.p.AutoTopUps.Get(t.Context(), s.payer.Org)
	if err != nil || a.Enabled || !strings.Contains(a.Stopped, "Until you are verified") {
		t.Fatalf("%+v %v", a, err)
	}
}

func TestPromo_VerifiedOnly(t *testing.T) {
	t.Parallel()
	s := limited(t, "pm_card_visa")
	admin := s.payer
	admin.Admin = true
	redeem := func() error {
		return billingtest.Err(s.p.PromoCodes.Redeem(t.Context(), s.payer, "WELCOME-1", idem.Request{}))
	}
	if err := billingtest.Err(s.p.PromoCodes.Create(t.Context(), admin, PromoCode{
		Code:    "WELCOME-1",
		Amount:  100 * money.Unit,
		MaxUses: 5,
	}, "a test", idem.Request{})); err != nil {
		t.Fatal(err)
	}
	if err := redeem(); !fault.Is(err, fault.QuotaExceeded) {
		t.Fatal(err)
	}
	s.verifyEmail()
	if err := redeem(); err != nil {
		t.Fatal(err)
	}
}
