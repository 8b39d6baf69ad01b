package payment

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// before returns an id that sorts before all others of its kind.
func before(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n+1) }

// crowd makes more orgs than one pass takes, with the lowest ids, whose auto top-up is at its daily cap.
func (s *shop) crowd(n int) {
	s.T.Helper()
	s.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x') ON CONFLICT DO NOTHING", s.payer.User,
		s.payer.User.String()+"@muster.test")
	for i := range n {
		s.Exec("INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", before(i))
		s.Exec(`INSERT INTO auto_topup (org_id, user_id, enabled, threshold, amount, daily_cap) VALUES ($1, $2, true,
			5000000000, 10000000000, 10000000000)`, before(i), s.payer.User)
		s.Exec(`INSERT INTO topup (id, org_id, amount, currency, state, automatic) VALUES ($1, $2, 10000000000, 'EUR',
			'succeeded', true)`, before(i), before(i))
	}
}

// Orgs at their daily cap do not keep others from being topped up.
func TestAutoTopUp_CappedOrgsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.crowd(batchRows)
	s.wish(AutoTopUp{Enabled: true, Threshold: 5 * money.Unit, Amount: 10 * money.Unit, DailyCap: 10 * money.Unit})
	for range 3 {
		s.autos()
	}
	if got := s.wallet(); got != 10*money.Unit {
		t.Fatalf("the org behind %d capped ones has %s", batchRows, got)
	}
	var soon, late int
	if err := s.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE next_at < clock_timestamp() + interval
		'30 minutes'),
		count(*) FILTER (WHERE next_at > clock_timestamp() + interval '2 hours') FROM auto_topup WHERE org_id <>
		$1`, s.payer.Org).Scan(&soon, &late); err != nil || soon != 0 || late != 0 {
		t.Errorf("%d capped orgs are looked at within half an hour, %d later than in two (%v)", soon, late, err)
	}
}

// Checkout pages that are never paid do not delay one that is.
func TestPoll_AbandonedPagesDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	for i := range batchRows {
		s.Exec(`INSERT INTO topup (id, org_id, amount, currency, state, created_at) VALUES ($1, $2, 10000000000, 'EUR',
			'pending', clock_timestamp() - interval '2 hours')`, before(i), s.payer.Org)
		s.Exec(`INSERT INTO stripe_outbox (id, kind, ref, params, idem_key, state) VALUES ($1, 'checkout.create', '', '{}',
			$2, 'done')`, before(i),
			topupKey(id.FromUUID[id.TopUp](uuid.MustParse(before(i)))))
	}
	paid := s.topUp(9 * money.Unit)
	if !s.stripe.Checkout.Pay(s.session(topupKey(paid.ID)), "pm_card_visa") {
		t.Fatal("not paid")
	}
	s.Exec("UPDATE topup SET created_at = clock_timestamp() - interval '1 hour' WHERE id = $1", paid.ID)
	for range 2 {
		if _, err := s.p.TopUps.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.want(paid, Succeeded)
}

// Replicas that send at the same time do not take the same rows, and everything is done once.
func TestOutbox_SharedBySenders(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(money.Unit) // the customer is made
	for range 30 {
		s.stripe.Faults.Fail(sandbox.Down)
		s.topUp(money.Unit)
	}
	s.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state = 'unknown' OR state = 'pending'")
	var replicas sync.WaitGroup
	for range 3 {
		replicas.Go(func() {
			if _, err := s.p.core.out.SendDue(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	var most int
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT max(attempts) FROM stripe_outbox").Scan(&most); err != nil ||
		most != 2 {
		t.Errorf("a row was sent %d times, want 2 (%v)", most, err)
	}
	s.square(31)
}

// When Stripe limits the rate, all calls pause: rows are not tried one after the other to meet the same answer.
func TestOutbox_RateLimitPausesAll(t *testing.T) {
	t.Parallel()
	w := billingtest.New(t, dbtest.New(t))
	fake := w.Stripe(nil, billingtest.Patience)
	var err error
	if fake.Client, err = stripe.New(stripe.Config{
		Key:           "sk_test_x",
		WebhookSecret: secret,
		URL:           fake.URL,
		BackOff:       time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	s := newShopAt(w, fake, "pm_card_visa")
	s.topUp(money.Unit)
	for range 40 {
		s.stripe.Faults.Fail(sandbox.Down)
		s.topUp(money.Unit)
	}
	s.stripe.Faults.Heal()
	s.stripe.Faults.Throttle(10) // then 429
	s.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('unknown', 'pending')")
	calls := s.stripe.Faults.Calls()
	if _, err := s.p.core.out.SendDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Ten get through; those under way at that moment, one for each of the outbox's eight workers, meet the 429; the
	// rest is not tried.
	if n := s.stripe.Faults.Calls() - calls; n < 11 || n > 10+8 {
		t.Errorf("%d calls were made", n)
	}
	var failed int
	if err := s.DB.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM topup WHERE state = 'failed'").Scan(&failed); err != nil || failed != 0 {
		t.Errorf("%d top-ups failed (%v)", failed, err)
	}
	calls = s.stripe.Faults.Calls()
	if top := s.topUp(money.Unit); top.State != Pending || s.stripe.Faults.Calls() != calls {
		t.Errorf("%s, %d calls during the pause", top.State, s.stripe.Faults.Calls()-calls)
	}
}
