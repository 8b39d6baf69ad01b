package payment

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// level reconciles and asserts that Stripe's balance equals the ledger's, that nothing is open, and that they
// balance.
func (s *shop) level() client.Reconciliation {
	s.T.Helper()
	if _, err := s.rec.Reconcile(context.Background()); err != nil {
		s.T.Fatal(err)
	}
	r, err := s.rec.Reconciliation(context.Background(), account.Principal{Admin: true})
	if err != nil {
		s.T.Fatal(err)
	}
	cents := s.stripe.Balance.Cents("eur")
	if r.Difference != 0 || r.Clearing != money.Nano(cents)*money.Cent || len(r.Open) != 0 || len(r.Unproven) != 0 {
		s.T.Fatalf("Stripe holds %d cents; %+v", cents, r)
	}
	if b, err := ledger.Check(context.Background(), s.DB); err != nil || !b.Balanced() {
		s.T.Fatal(b.Problems, err)
	}
	return r
}

func (s *shop) balanceOf(a ledger.Account) money.Nano {
	s.T.Helper()
	n, err := ledger.Balance(context.Background(), s.DB.Q, a)
	if err != nil {
		s.T.Fatal(err)
	}
	return n
}

func (s *shop) giveBack(n money.Nano) ([]Refund, error) {
	made, _, err := s.p.Refunds.GiveBack(context.Background(), s.payer, n, idem.Request{})
	return made, err
}

func TestRefund_UnusedBalance(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	first, second := s.topUp(10*money.Unit), s.topUp(20*money.Unit)
	s.spend(4 * money.Unit)
	for _, bad := range []money.Nano{0, -money.Unit, money.Cent / 2, money.Unit + 1, 1 << 62} {
		if _, err := s.giveBack(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := s.giveBack(27 * money.Unit); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "only 26.00 can") {
		t.Fatal("more than there is:", err)
	}
	if _, err := s.giveBack(900 * money.Unit); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "only 26.00 can") {
		t.Fatal("more than was paid:", err)
	}
	list, err := s.giveBack(23 * money.Unit)
	if err != nil || len(list) != 2 || list[0].State != Succeeded || list[1].State != Succeeded {
		t.Fatal(list, err)
	}
	per := map[id.TopUp]money.Nano{}
	for _, r := range list {
		per[r.TopUp] += r.Amount
	}
	if per[second.ID] != 20*money.Unit || per[first.ID] != 3*money.Unit || s.wallet() != 3*money.Unit {
		t.Fatal(per, s.wallet())
	}
	if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); err != nil || n != 3*money.Unit {
		t.Fatal(n, err)
	}
	s.level()
	// A bank sends one back days later: the money is in the wallet again.
	s.stripe.Refunds.Fail(s.stripe.Refunds.IDs()[0])
	s.deliver(s.stripe.Webhooks.Deliveries())
	if s.wallet() != 3*money.Unit+list[0].Amount && s.wallet() != 3*money.Unit+list[1].Amount {
		t.Fatal(s.wallet())
	}
	s.level()
}

// A code is used once by each person and card, whatever the number of organisations.
func TestPromo_OncePerPersonAndCard(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	admin := account.Principal{User: id.New[id.User](), Admin: true}
	good := PromoCode{Code: "welcome-2026", Amount: 5 * money.Unit, MaxUses: 20}
	if err := billingtest.Err(s.p.PromoCodes.Create(t.Context(), admin, good, "a test", idem.Request{})); err != nil {
		t.Fatal(err)
	}
	user := func(name string) id.User {
		u := id.New[id.User]()
		s.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", u, name+"@example.com")
		return u
	}
	redeem := func(of string, u id.User, number string, want bool) {
		t.Helper()
		who := account.Principal{Org: s.Org(), User: u}
		s.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", who.Org, u)
		if number != "" {
			card := id.New[id.Card]()
			s.Exec("INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year, fingerprint) VALUES "+
				"($1, $2, $3, 'visa', '4242', 1, 2030, $4)", card, who.Org, card.String(), number)
		}
		err := billingtest.Err(s.p.PromoCodes.Redeem(t.Context(), who, "welcome-2026", idem.Request{}))
		if (err == nil) != want || err != nil && !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", of, err)
		}
	}
	ada, bob := user("ada"), user("bob")
	redeem("a new person", ada, "card1", true)
	redeem("the same person", ada, "", false)
	redeem("another person with the same card", bob, "card1", false)
	redeem("another person with another card", user("eve"), "card2", true)
	s.Exec("DELETE FROM membership WHERE user_id = $1", ada)
	s.Exec("DELETE FROM circle_link WHERE via = 'user:' || $1::text", ada)
	redeem("a person that has left where it used it", ada, "card3", false)
}

// What was given away cannot be taken out, and no code is used twice, guessed or overused.
// What is owed for storage cannot be taken out.
func TestRefund_StorageIsOwed(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(100 * money.Unit)
	billingtest.OweStorage(t, s.DB, s.payer.Org, 90*money.Unit, time.Hour)
	if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); n != 10*money.Unit || err != nil {
		t.Errorf("%s %v", n, err)
	}
	if _, err := s.giveBack(10*money.Unit + money.Cent); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "only 10.00 can be refunded") {
		t.Errorf("more than is left: %v", err)
	}
	if list, err := s.giveBack(10 * money.Unit); err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
}

func TestPromoCredit(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	admin := account.Principal{User: id.New[id.User](), Admin: true}
	create := func(who account.Principal, c PromoCode) (err error) {
		return billingtest.Err(s.p.PromoCodes.Create(t.Context(), who, c, "a test", idem.Request{}))
	}
	good := PromoCode{Code: "welcome-2026", Amount: 5 * money.Unit, MaxUses: 2}
	if err := create(s.payer, good); !fault.Is(err, fault.Forbidden) {
		t.Fatal(err)
	}
	if err := create(admin, good); err != nil {
		t.Fatal(err)
	}
	if err := create(admin, good); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	for _, c := range []PromoCode{{
		Code:    "short",
		Amount:  money.Unit,
		MaxUses: 1,
	}, {Code: "with space", Amount: money.Unit, MaxUses: 1},
		{
			Code:    "long-enough",
			Amount:  0,
			MaxUses: 1,
		}, {Code: "long-enough", Amount: -money.Unit, MaxUses: 1}, {Code: "long-enough", Amount: money.Unit + 1, MaxUses: 1},
		{Code: "long-enough", Amount: 1 << 62, MaxUses: 1}, {Code: "long-enough", Amount: money.Unit}} {
		if err := create(admin, c); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	redeem := func(who account.Principal, code string) error {
		return billingtest.Err(s.p.PromoCodes.Redeem(t.Context(), who, code, idem.Request{}))
	}
	if err := redeem(s.payer, " Welcome-2026"); err != nil {
		t.Fatal(err)
	}
	if err := redeem(s.payer, "welcome-2026"); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	other := newShopOn(t, s.DB, "pm_card_visa").payer
	third := newShopOn(t, s.DB, "pm_card_visa").payer
	if err := redeem(other, "welcome-2026"); err != nil {
		t.Fatal(err)
	}
	if err := redeem(third, "welcome-2026"); !fault.Is(err, fault.NotFound) {
		t.Fatal("a code that is used up:", err)
	}
	for _, c := range []struct {
		code string
		org  id.Org
		want int
	}{{"", id.Org{}, 2}, {"welcome-2026", id.Org{}, 2}, {"no-such-code", id.Org{}, 0}, {"", other.Org, 1},
		{"Welcome-2026", s.payer.Org, 1}, {"", third.Org, 0}} {
		all, err := s.p.PromoCodes.Redemptions(t.Context(), admin, c.code, c.org, "", 10)
		if err != nil || len(all) != c.want {
			t.Errorf("%+v: %+v %v", c, all, err)
		}
	}
	page, err := s.p.PromoCodes.Redemptions(t.Context(), admin, "", id.Org{}, "", 1)
	if err != nil || len(page) != 1 || page[0].Org != other.Org || page[0].Amount != 5*money.Unit ||
		page[0].OrgName == "" {
		t.Fatalf("%+v %v", page, err)
	}
	page, err = s.p.PromoCodes.Redemptions(t.Context(), admin, "", id.Org{}, RedemptionCursor(page[0]), 5)
	if err != nil || len(page) != 1 || page[0].Org != s.payer.Org {
		t.Fatalf("the second page: %+v %v", page, err)
	}
	if _, err := s.p.PromoCodes.Redemptions(t.Context(), s.payer, "", id.Org{}, "", 1); !fault.Is(err, fault.Forbidden) {
		t.Error(err)
	}
	if _, err := s.p.PromoCodes.Redemptions(t.Context(), admin, "", id.Org{}, "x", 1); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	for range promoTries {
		err = redeem(third, "no-such-code")
	}
	if !fault.Is(err, fault.RateLimited) {
		t.Fatal(err)
	}
	if _, err := s.giveBack(money.Unit); !fault.Is(err, fault.Conflict) {
		t.Fatal("promotional credit was paid out:", err)
	}
	s.topUp(10 * money.Unit)
	if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); err != nil || n != 10*money.Unit {
		t.Fatal(n, err)
	}
	if s.wallet() != 15*money.Unit || s.balanceOf(ledger.Promo("EUR")) != -10*money.Unit {
		t.Fatal(s.wallet())
	}
}

func TestDisputes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for name, c := range map[string]struct {
		spent       money.Nano
		won         bool
		wallet, bad money.Nano
	}{
		"won, nothing spent":  {0, true, 10 * money.Unit, 0},
		"won, some spent":     {4 * money.Unit, true, 6 * money.Unit, 0},
		"lost, nothing spent": {0, false, 0, 0},
		"lost, some spent":    {4 * money.Unit, false, 0, 4 * money.Unit},
	} {
		for _, late := range []bool{false, true} { // late: no event arrives before it is decided
			s := newShopOn(t, d, "pm_card_visa")
			bad := s.balanceOf(ledger.BadDebt("EUR"))
			top := s.topUp(10 * money.Unit)
			if c.spent > 0 {
				s.spend(c.spent)
			}
			dp := s.stripe.Disputes.Open(s.session(topupKey(top.ID)), 1000)
			if !late {
				s.deliver(s.stripe.Webhooks.Deliveries())
				if s.wallet() != 0 {
					t.Fatalf("%s: %s is still there to spend", name, s.wallet())
				}
				if _, err := s.giveBack(money.Unit); !fault.Is(err, fault.Conflict) {
					t.Fatalf("%s: a disputed payment was refunded: %v", name, err)
				}
			}
			s.stripe.Disputes.Decide(dp, c.won)
			ds := s.stripe.Webhooks.Deliveries()
			s.deliver(append(ds, ds...))
			if s.wallet() != c.wallet || s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")) != 0 ||
				bad-s.balanceOf(ledger.BadDebt("EUR")) != c.bad {
				t.Errorf("%s, late %t: wallet %s, set aside %s, bad debt %s", name, late, s.wallet(),
					s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")), bad-s.balanceOf(ledger.BadDebt("EUR")))
			}
			if n := s.notices("dispute:%"); n != 1 {
				t.Errorf("%s: told %d times", name, n)
			}
		}
	}
}

// What the ledger does not know goes to suspense and comes back when they learn of it; what only Stripe knows is
// booked.
func TestReconciliation(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(10 * money.Unit)
	if r := s.level(); r.Matched != 1 || s.balanceOf(ledger.StripeFees("EUR")) != -59*money.Cent {
		t.Fatalf("%+v, fees %s", r, s.balanceOf(ledger.StripeFees("EUR")))
	}
	s.stripe.Balance.Stray("payout", "eur", -500)
	s.stripe.Balance.Stray("stripe_fee", "eur", -7)
	if s.level(); s.balanceOf(ledger.Bank("EUR")) != -5*money.Unit {
		t.Fatal(s.balanceOf(ledger.Bank("EUR")))
	}
	boss := s.Admin().Org
	s.stripe.Balance.Stray("charge", "eur", 1234) // a charge made by hand in Stripe's dashboard
	if _, err := s.rec.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := s.rec.Reconciliation(t.Context(), account.Principal{Admin: true})
	if err != nil || r.Waiting != 1 || r.Difference != 1234*money.Cent {
		t.Fatalf("%+v %v", r, err)
	}
	s.Exec("UPDATE stripe_balance SET seen_at = seen_at - interval '2 hours'")
	for range 2 {
		if _, err := s.rec.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if told := s.noticeTitles(boss, "stripe_suspense:"); len(told) < 1 || len(told) > 2 ||
		!strings.Contains(told[0], "12.34") {
		// over midnight twice
		t.Errorf("administrators were told %q", told)
	}
	r, err = s.rec.Reconciliation(t.Context(), account.Principal{Admin: true})
	if err != nil || r.Suspense != 1 || r.Difference != 0 || s.balanceOf(ledger.Suspense("EUR")) != 1234*money.Cent {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := s.rec.Reconciliation(t.Context(), s.payer); !fault.Is(err, fault.Forbidden) {
		t.Fatal(err)
	}
}

// A payment whose answer and webhooks are lost is found through Stripe's balance, whatever the outbox does.
func TestReconciliation_FindsLostPayment(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(money.Unit)
	s.stripe.Faults.Fail(sandbox.Error500)
	lost := s.topUp(8 * money.Unit)
	s.want(lost, Pending)
	s.level()
	s.want(lost, Succeeded)
	s.SendAll(s.p.core.out)
	s.square(2)
}

// An entry that comes hours after its change takes it back out of suspense.
func TestReconciliation_SuspenseResolved(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(10 * money.Unit)
	s.stripe.Balance.Stray("transfer", "eur", -300)
	for range 2 {
		if _, err := s.rec.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Exec("UPDATE stripe_balance SET seen_at = seen_at - interval '2 hours', next_at = clock_timestamp()")
	}
	r, err := s.rec.Reconciliation(t.Context(), account.Principal{Admin: true})
	if err != nil || r.Suspense != 1 || s.balanceOf(ledger.Suspense("EUR")) != -3*money.Unit {
		t.Fatalf("%+v %v", r, err)
	}
	err = s.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "stripe_transfer",
			Key:  "transfer:" + r.Open[0].Source,
			Transfers: []ledger.Transfer{{
				Debit:  ledger.Fee("EUR"),
				Credit: ledger.StripeClearing("EUR"),
				Amount: 3 * money.Unit,
			}},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.level()
	if got := s.balanceOf(ledger.Suspense("EUR")); got != 0 {
		t.Fatal(got)
	}
}

// Payments, refunds and disputes under random faults, with webhooks shuffled, repeated and lost: in the end Stripe and
// the ledger agrees to the cent, and no payment gave back more than it brought.
func TestRefund_RandomFaults(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	r := rand.New(rand.NewPCG(3, 14))
	kinds := []sandbox.Fault{sandbox.None, sandbox.None, sandbox.LostAnswer, sandbox.Error500, sandbox.RateLimited,
		sandbox.Truncated, sandbox.InUse, sandbox.Down}
	s.topUp(5 * money.Unit)
	for range 40 {
		s.stripe.Faults.Fail(kinds[r.IntN(len(kinds))])
	}
	for i := range 30 {
		switch r.IntN(4) {
		case 0, 1:
			s.topUp(money.Nano(1+r.IntN(20)) * money.Unit)
		case 2:
			if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); err != nil {
				t.Fatal(err)
			} else if n >= money.Unit {
				if _, err := s.giveBack(n / 3 / money.Cent * money.Cent); err != nil {
					t.Fatal(err)
				}
			}
		case 3:
			list, err := s.p.TopUps.List(t.Context(), s.payer.Org, id.TopUp{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			if top := list[r.IntN(len(list))]; top.State == Succeeded {
				if dp := s.stripe.Disputes.Open(s.session(topupKey(top.ID)), 100); dp != "" {
					s.stripe.Disputes.Decide(dp, i%2 == 0)
				}
			}
		}
		s.Exec("UPDATE payment_standing SET state = 'ok'") // what disputes forbid is tested elsewhere
		if ds := s.stripe.Webhooks.Deliveries(); r.IntN(3) > 0 {
			ds = append(ds, ds...)
			r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
			s.deliver(ds)
		} else {
			kept := ds[:0]
			for _, d := range ds {
				if r.IntN(2) == 0 {
					kept = append(kept, d)
				}
			}
			s.deliver(kept)
		}
	}
	s.stripe.Faults.Heal()
	s.SendAll(s.p.core.out)
	if _, err := s.p.TopUps.poll(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.level()
	var over int
	if err := s.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM topup t WHERE t.amount <
		(SELECT coalesce(sum(r.amount), 0) FROM refund r WHERE r.topup_id = t.id AND r.state <>
		'failed')`).Scan(&over); err != nil || over != 0 {
		t.Fatal(over, err)
	}
}
