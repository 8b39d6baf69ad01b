package payment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// move posts an entry between two accounts, as a cluster does.
func (s *shop) move(debit, credit ledger.Account, n money.Nano) error {
	return s.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "compensation", Key: "test:" + id.New[id.LedgerTx]().String(),
			Transfers: []ledger.Transfer{{Debit: debit, Credit: credit, Amount: n}}})
		return err
	})
}

func (s *shop) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// dispute opens a dispute of a whole payment and delivers Stripe's events about it.
func (s *shop) dispute(top TopUp) (id string) {
	s.T.Helper()
	id = s.stripe.Disputes.Open(s.session(topupKey(top.ID)), int64(top.Total/money.Cent))
	if id == "" {
		s.T.Fatal("the payment cannot be disputed")
	}
	s.deliver(s.stripe.Webhooks.Deliveries())
	return id
}

func (s *shop) decide(dispute string, won bool) {
	s.T.Helper()
	s.stripe.Disputes.Decide(dispute, won)
	s.deliver(s.stripe.Webhooks.Deliveries())
}

func (s *shop) spendable() money.Nano {
	s.T.Helper()
	n, err := ledger.Spendable(context.Background(), s.DB.Q, ledger.Wallet(s.payer.Org, "EUR"))
	s.must(err)
	return n
}

func (s *shop) collectAll() {
	s.T.Helper()
	_, err := s.p.Claims.Collect(context.Background())
	s.must(err)
}

func (s *shop) standing() Standing {
	s.T.Helper()
	st, err := s.p.Standings.Of(context.Background(), s.payer.Org)
	s.must(err)
	return st
}

// Money that was in a hold when the dispute opened is set aside when it comes back, and cannot go to another card.
func TestDispute_ReturnedMoneySetAside(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	first := s.topUp(100 * u)
	s.topUp(100 * u)
	wallet, hold := ledger.Wallet(s.payer.Org, "EUR"), ledger.Hold(s.payer.Org, id.New[id.Cluster](), "EUR")
	s.must(s.move(wallet, hold, 200*u))
	dp := s.dispute(first)
	if st := s.standing(); st.State != StandingDisputed || st.Short != 100*u || st.Disputed != 100*u {
		t.Fatalf("%+v", st)
	}
	s.must(s.move(hold, wallet, 150*u))
	if n := s.spendable(); n != 50*u {
		t.Fatalf("%s can be spent of 150.00, of which 100.00 are disputed", n)
	}
	if err := s.move(wallet, hold, 51*u); !fault.Is(err, fault.InsufficientFunds) {
		t.Fatal("disputed money was spent:", err)
	}
	s.collectAll()
	if n, err := s.p.Refunds.Refundable(t.Context(), s.payer.Org); err != nil || n != 50*u || s.wallet() != 50*u {
		t.Fatal(n, s.wallet(), err)
	}
	if st := s.standing(); st.Short != 0 {
		t.Fatalf("%+v", st)
	}
	s.must(s.move(hold, wallet, 50*u))
	if _, err := s.giveBack(100 * u); err != nil { // the other payment is not disputed
		t.Fatal(err)
	}
	s.decide(dp, false)
	if s.wallet() != 0 || s.balanceOf(ledger.BadDebt("EUR")) != 0 ||
		s.balanceOf(ledger.DisputeHold(s.payer.Org, "EUR")) != 0 {
		t.Fatalf("wallet %s, bad debt %s", s.wallet(), s.balanceOf(ledger.BadDebt("EUR")))
	}
	s.level()
}

// A refund that fails after the dispute opened, promotional credit and later top-ups go to the dispute too.
func TestDispute_CreditCoversItFirst(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	s.topUp(30 * u)
	disputed := s.topUp(60 * u)
	s.spend(60 * u)
	if _, err := s.giveBack(10 * u); err != nil { // of the disputed payment
		t.Fatal(err)
	}
	s.spend(20 * u)
	dp := s.stripe.Disputes.Open(s.session(topupKey(disputed.ID)), 5000)
	s.deliver(s.stripe.Webhooks.Deliveries())
	if st := s.standing(); st.Short != 50*u {
		t.Fatalf("%+v", st)
	}
	s.stripe.Refunds.Fail(s.stripe.Refunds.IDs()[0])
	s.deliver(s.stripe.Webhooks.Deliveries())
	if n := s.spendable(); n != 0 {
		t.Fatalf("%s of a failed refund can be spent", n)
	}
	s.must(s.move(ledger.Goodwill("EUR"), ledger.Wallet(s.payer.Org, "EUR"), 15*u))
	s.collectAll()
	if st := s.standing(); s.spendable() != 0 || s.wallet() != 0 || st.Short != 25*u {
		t.Fatalf("%+v, %s in the wallet", st, s.wallet())
	}
	s.topUp(40 * u)
	if s.wallet() != 15*u {
		t.Fatalf("%s are left of the top-up", s.wallet())
	}
	s.decide(dp, true)
	if s.wallet() != 65*u {
		t.Fatal(s.wallet())
	}
	s.level()
}

// What a lost dispute cost is repaid by whatever is credited later.
func TestDispute_LostIsRepaidFirst(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	top := s.topUp(100 * u)
	hold := ledger.Hold(s.payer.Org, id.New[id.Cluster](), "EUR")
	s.must(s.move(ledger.Wallet(s.payer.Org, "EUR"), hold, 80*u))
	s.decide(s.dispute(top), false)
	if got := s.balanceOf(ledger.BadDebt("EUR")); got != -80*u {
		t.Fatal(got)
	}
	s.must(s.move(hold, ledger.Wallet(s.payer.Org, "EUR"), 50*u))
	if s.spendable() != 0 {
		t.Fatal("money of a lost dispute can be spent:", s.spendable())
	}
	s.collectAll()
	if st := s.standing(); st.State != StandingOK || st.Debt != 30*u || s.balanceOf(ledger.BadDebt("EUR")) != -30*u {
		t.Fatalf("%+v, bad debt %s", st, s.balanceOf(ledger.BadDebt("EUR")))
	}
	s.topUp(50 * u)
	if s.wallet() != 20*u || s.balanceOf(ledger.BadDebt("EUR")) != 0 || s.standing().Debt != 0 {
		t.Fatal(s.wallet(), s.balanceOf(ledger.BadDebt("EUR")))
	}
	s.level()
}

func TestStanding_FollowsDisputes(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	boss := s.Admin().Org
	admin := account.Principal{User: id.New[id.User](), Org: boss, Admin: true}
	add := func(n money.Nano) error {
		_, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{Amount: n}, idem.Request{})
		return err
	}
	forgive := func(who account.Principal, reason string) error {
		return billingtest.Err(s.p.Standings.Forgive(t.Context(), who,
			s.payer.Org, reason, idem.Request{}))
	}
	if err := forgive(admin, "none"); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	var dps []string
	for range 3 {
		dps = append(dps, s.dispute(s.topUp(10*u)))
	}
	if err := add(81 * u); !fault.Is(err, fault.QuotaExceeded) { // 20 since the first dispute
		t.Fatal("while a payment is disputed, any amount can be added:", err)
	}
	s.must(add(70 * u))
	s.decide(dps[0], false)
	s.decide(dps[1], false)
	if st := s.standing(); st.State != StandingDisputed || st.LostDisputes != 2 || *st.DisputedLeft != 30*u {
		t.Fatalf("%+v", st)
	}
	s.decide(dps[2], false)
	if st := s.standing(); st.State != StandingSuspended {
		t.Fatalf("%+v", st)
	}
	if err := add(u); !fault.Is(err, fault.Forbidden) {
		t.Fatal("a suspended org adds credit:", err)
	}
	if len(s.noticeTitles(s.payer.Org, "suspended:")) != 1 || len(s.noticeTitles(boss, "suspended:")) != 1 {
		t.Error("nobody was told")
	}
	if all, err := s.p.Standings.List(t.Context(), admin); err != nil || len(all) != 1 || all[0].Org != s.payer.Org ||
		all[0].Lost != 3 {
		t.Fatal(all, err)
	}
	if _, err := s.p.Standings.List(t.Context(), s.payer); !fault.Is(err, fault.Forbidden) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who    account.Principal
		reason string
		want   fault.Kind
	}{{s.payer, "mine", fault.Forbidden}, {admin, " ", fault.Invalid}} {
		if err := forgive(c.who, c.reason); !fault.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s.must(forgive(admin, "a stolen card of theirs"))
	if st := s.standing(); st.State != StandingOK || st.DisputedLeft != nil {
		t.Fatalf("%+v", st)
	}
}

// The card of a lost dispute can no longer pay for any org: a saved one is refused, and a payment with it on a page is
// refunded.
func TestDispute_LostBlocksCard(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "")
	s.card("pm_card_visa")
	thief := newShopOn(t, s.DB, "")
	thief.p, thief.stripe = s.p, s.stripe
	thief.card("pm_card_visa")
	s.decide(s.dispute(s.topUp(10*u)), false)
	if top := thief.topUp(5 * u); top.State != Failed || thief.wallet() != 0 {
		t.Fatalf("%+v", top)
	}
	other := newShopOn(t, s.DB, "")
	other.p, other.stripe = s.p, s.stripe
	page := other.topUp(7 * u)
	s.stripe.Checkout.Pay(s.session(topupKey(page.ID)), "pm_card_visa")
	s.deliver(s.stripe.Webhooks.Deliveries())
	s.SendAll(s.p.core.out)
	if other.wallet() != 0 || len(other.cards()) != 0 {
		t.Fatalf("%s paid with a blocked card, %d cards kept", other.wallet(), len(other.cards()))
	}
	if list, err := s.p.Refunds.List(t.Context(), other.payer.Org); err != nil || len(list) != 1 ||
		list[0].State != Succeeded || list[0].Amount != 7*u {
		t.Fatal(list, err)
	}
	s.stripe.Checkout.Pay(s.session(topupKey(other.topUp(8*u).ID)), "pm_card_mastercard")
	s.deliver(s.stripe.Webhooks.Deliveries())
	if other.wallet() != 8*u {
		t.Fatal(other.wallet())
	}
	s.level()
}

// Disputes in every order with holds, refunds, credits and top-ups, killed at any statement: what can be spent is
// exactly what was paid in and is neither used, held, given back nor disputed, and the ledger agrees with Stripe.
func TestDispute_SpendableNeverDisputed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			disputeAtRandom(t, rand.New(rand.NewPCG(seed, 12)))
		})
	}
}

// undisputed is what could be spent, from the rows of payments, refunds and disputes, and from what tests moved; not
// from balances.
const undisputed = `SELECT greatest(0,
      (SELECT coalesce(sum(amount), 0) FROM topup WHERE org_id = $1 AND state = 'succeeded')
    - (SELECT coalesce(sum(amount), 0) FROM refund WHERE org_id = $1 AND state <> 'failed')
    - (SELECT coalesce(sum(amount), 0) FROM dispute WHERE org_id = $1 AND state IN ('open', 'lost'))
    + (SELECT coalesce(sum(CASE WHEN c.kind = 'renter_wallet' THEN t.amount ELSE -t.amount END), 0)
       FROM ledger_tx x JOIN ledger_transfer t ON t.tx_id = x.id
       JOIN ledger_account d ON d.id = t.debit_account_id JOIN ledger_account c ON c.id = t.credit_account_id
       WHERE x.kind = 'compensation' AND (d.kind = 'renter_wallet' OR c.kind = 'renter_wallet')))::bigint`

func disputeAtRandom(t *testing.T, r *rand.Rand) {
	const u = money.Unit
	d, k := dbtest.NewMortal(t)
	s := newShopOn(t, d, "pm_card_visa")
	s.p.core.cfg.DisputedLimit = 1_000_000 * u
	wallet, hold := ledger.Wallet(s.payer.Org, "EUR"), ledger.Hold(s.payer.Org, id.New[id.Cluster](), "EUR")
	ctx := t.Context()
	var open, tops []string
	check := func(what string) {
		t.Helper()
		k.Left.Store(0)
		var want money.Nano
		s.must(d.Pool.QueryRow(ctx, undisputed, s.payer.Org).Scan(&want))
		if got := s.spendable(); got != want {
			t.Fatalf("%s: %s can be spent, and %s is paid, unused and undisputed", what, got, want)
		}
		if b, err := ledger.Check(ctx, d); err != nil || !b.Balanced() {
			t.Fatal(what, b.Problems, err)
		}
	}
	for i := range 90 {
		if r.IntN(2) == 0 {
			k.Left.Store(int64(1 + r.IntN(40))) // a later statement kills its process; the error does not matter
		}
		what := r.IntN(8)
		switch what {
		case 0, 1:
			top, _, err := s.p.TopUps.Create(ctx, s.payer, TopUpRequest{Amount: money.Nano(1+r.IntN(20)) * u}, idem.Request{})
			if err == nil && top.State == Succeeded {
				tops = append(tops, topupKey(top.ID))
			}
		case 2:
			k.Left.Store(0)
			if n := s.spendable(); n > 0 {
				_ = s.move(wallet, hold, 1+money.Nano(r.Int64N(int64(n))))
			}
		case 3:
			k.Left.Store(0)
			if n := s.balanceOf(hold); n > 0 {
				to := wallet
				if r.IntN(3) == 0 {
					to = ledger.Fee("EUR")
				}
				_ = s.move(hold, to, 1+money.Nano(r.Int64N(int64(n))))
			}
		case 4:
			if n, err := s.p.Refunds.Refundable(ctx, s.payer.Org); err == nil && n >= money.Cent {
				_, _ = s.giveBack(money.Cent * (1 + money.Nano(r.Int64N(int64(n/money.Cent)))))
			}
			if all := s.stripe.Refunds.IDs(); len(all) > 0 && r.IntN(2) == 0 {
				s.stripe.Refunds.Fail(all[r.IntN(len(all))])
			}
		case 5:
			if len(tops) > 0 {
				var pi string
				key := tops[r.IntN(len(tops))]
				k.Left.Store(0)
				pi = s.session(key)
				if dp := s.stripe.Disputes.Open(pi, int64(50+r.IntN(50))); dp != "" {
					open = append(open, dp)
				}
			}
		case 6:
			if len(open) > 0 {
				j := r.IntN(len(open))
				s.stripe.Disputes.Decide(open[j], r.IntN(2) == 0)
				open = append(open[:j], open[j+1:]...)
			}
		case 7:
			_, _ = s.p.Claims.Collect(ctx)
		}
		ds := s.stripe.Webhooks.Deliveries()
		r.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
		for _, e := range ds {
			for range r.IntN(3) { // lost, once, twice
				_ = s.in.Receive(ctx, e.Payload, e.Signature)
			}
		}
		_, _ = s.in.Process(ctx)
		check(fmt.Sprint("step ", i, " of kind ", what))
		s.Exec("UPDATE payment_standing SET state = 'ok'")
	}
	s.stripe.Faults.Heal()
	s.SendAll(s.p.core.out)
	s.Exec("UPDATE stripe_event SET next_at = clock_timestamp() WHERE processed_at IS NULL")
	s.deliver(s.stripe.Webhooks.Deliveries())
	if _, err := s.p.TopUps.poll(ctx, 0); err != nil {
		t.Fatal(err)
	}
	s.level() // finds the disputes whose events were lost
	s.collectAll()
	check("in the end")
	if w := s.wallet(); w != s.spendable() && w > 0 {
		t.Fatalf("%s in the wallet, %s to spend, and all claims are collected", w, s.spendable())
	}
}
