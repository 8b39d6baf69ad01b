package payment

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

// noticeTitles returns the bodies of the org's notices whose key begins so.
func (s *shop) noticeTitles(org id.Org, key string) (bodies []string) {
	s.T.Helper()
	err := s.DB.Pool.QueryRow(context.Background(),
		"SELECT coalesce(array_agg(body ORDER BY created_at), '{}') FROM notice WHERE org_id = $1 AND "+
			"starts_with(dedupe_key, $2)", org, key).Scan(&bodies)
	if err != nil {
		s.T.Fatal(err)
	}
	return bodies
}

// Each kind of bad delivery is refused with its reason and stored nowhere, and admins are notified once.
func TestWebhook_RefusalsNotifyAdmins(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	boss := s.Admin().Org
	s.topUp(money.Unit)
	good := s.stripe.Webhooks.Deliveries()[0]
	now := time.Now()
	nothing := `{"id":"evt_1","type":"x","data":{"object":{}}}`
	for reason, c := range map[string]struct{ body, signature, says string }{
		"unsigned":      {string(good.Payload), "", "not signed"},
		"old":           {string(good.Payload), sandbox.Sign(good.Payload, secret, now.Add(-time.Hour)), "old"},
		"future":        {string(good.Payload), sandbox.Sign(good.Payload, secret, now.Add(time.Hour)), "ahead of time"},
		"bad_signature": {string(good.Payload), sandbox.Sign(good.Payload, "whsec_other", now), "no valid signature"},
		"malformed":     {nothing, sandbox.Sign([]byte(nothing), secret, now), "no id, type or object id"},
	} {
		for range 3 {
			if err := s.in.Receive(t.Context(), []byte(c.body), c.signature); !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v", reason, err)
			}
		}
		// Over midnight they are notified twice.
		if told := s.noticeTitles(boss, "webhook_refused:"+reason+":"); len(told) < 1 || len(told) > 2 ||
			!strings.Contains(told[0], c.says) {
			t.Errorf("%s: administrators were told %q", reason, told)
		}
	}
	if n := len(s.noticeTitles(s.payer.Org, "webhook_refused")); n != 0 {
		t.Errorf("somebody who is no administrator was told %d times", n)
	}
	var stored int
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM stripe_event").Scan(&stored); err != nil ||
		stored != 0 {
		t.Errorf("%d events are stored: %v", stored, err)
	}
	for range 3 { // replayed while its signature is young: stored once, booked once
		s.deliver([]sandbox.Delivery{good})
	}
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM stripe_event").Scan(&stored); err != nil ||
		stored != 1 {
		t.Errorf("%d events are stored: %v", stored, err)
	}
	s.square(1)
}

// A payment of another amount or currency than its top-up credits no wallet: it goes to suspense, and admins are
// notified.
func TestTopUp_OtherAmountOrCurrencyToSuspense(t *testing.T) {
	t.Parallel()
	d := newShop(t, "pm_slow").DB
	for name, c := range map[string]struct {
		cents    int64
		currency string
	}{"more": {201, "EUR"}, "less": {199, "EUR"}, "currency": {200, "USD"}, "huge": {99_999_999, "EUR"}} {
		s := newShopOn(t, d, "pm_slow")
		boss := s.Admin().Org
		before := balance(s, ledger.Suspense(c.currency))
		top := s.topUp(2 * money.Unit)
		pay := stripe.Payment{
			ID:       fmt.Sprintf("pi_%s", name),
			TopUp:    top.ID.String(),
			Status:   stripe.Succeeded,
			Cents:    c.cents,
			Currency: c.currency,
		}
		for range 2 {
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return s.p.TopUps.settle(ctx, tx, top.ID, pay,
					true)
			}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		s.want(top, Failed)
		if s.wallet() != 0 {
			t.Errorf("%s: %s was credited", name, s.wallet())
		}
		if got := balance(s, ledger.Suspense(c.currency)) - before; got != money.Nano(c.cents)*money.Cent {
			t.Errorf("%s: %s is in suspense", name, got)
		}
		if told := s.noticeTitles(boss, "topup_mismatch:"); len(told) != 1 || !strings.Contains(told[0], pay.ID) {
			t.Errorf("%s: administrators were told %q", name, told)
		}
		if told := s.noticeTitles(s.payer.Org, "topup:"); len(told) != 1 {
			t.Errorf("%s: the payer was told %q", name, told)
		}
	}
}

// An amount that cannot be true is booked nowhere, and is no amount of another sign either.
func TestAmounts_OutOfRangeRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_slow")
	top := s.topUp(2 * money.Unit)
	for _, cents := range []int64{stripe.MaxCents + 1, math.MaxInt64, math.MinInt64, math.MaxInt64/int64(money.Cent) + 1} {
		err := s.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return s.p.TopUps.settle(ctx, tx, top.ID, stripe.Payment{
				ID:       "pi_x",
				Status:   stripe.Succeeded,
				Cents:    cents,
				Currency: "EUR",
			}, true)
		})
		if err == nil {
			t.Errorf("%d cents were booked", cents)
		}
		if _, err := s.p.Invoices.apply(t.Context(), s.payer.Org, stripe.Invoice{
			ID:         "in_x",
			Status:     stripe.InvoicePaid,
			AmountPaid: cents,
			Currency:   "EUR",
		}); err == nil {
			t.Errorf("an invoice of %d cents was booked", cents)
		}
	}
	s.want(top, Pending)
	s.square(0)
}

func balance(s *shop, a ledger.Account) money.Nano {
	s.T.Helper()
	n, err := ledger.Balance(context.Background(), s.DB.Q, a)
	if err != nil {
		s.T.Fatal(err)
	}
	return n
}
