package payment

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// operator is a payer with hosts, whose bond stands in for a lease.
type operator struct {
	*shop
	bond, hold ledger.Account
}

// newOperator returns one that has 30.00 in its wallet, 35.00 in its bond and 25.00 reserved for a lease; of the bond,
// 20.00 came out of the wallet and 40.00 were retained from earnings. 100.00 were paid in, and are disputed.
func newOperator(t *testing.T) (o operator, dispute string) {
	t.Helper()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	o = operator{s, ledger.HostBond(s.payer.Org, "EUR"), ledger.BondHold(s.payer.Org, id.New[id.Lease](), "EUR")}
	top := s.topUp(100 * u)
	s.must(s.move(ledger.Wallet(s.payer.Org, "EUR"), o.bond, 20*u))
	s.Exec("INSERT INTO bond_deposited (org_id, currency, amount) VALUES ($1, 'EUR', $2)", s.payer.Org, 20*u)
	s.must(s.move(ledger.StripeClearing("EUR"), o.bond, 40*u))
	s.must(s.move(o.bond, o.hold, 25*u))
	s.spend(50 * u)
	return o, s.dispute(top)
}

// has asserts what is in the wallet, in the bond, and set aside.
func (o operator) has(when string, wallet, inBond, aside money.Nano) {
	o.T.Helper()
	if w, b, a := o.wallet(), o.balanceOf(o.bond), o.balanceOf(ledger.DisputeHold(o.payer.Org, "EUR")); w != wallet ||
		b != inBond || a != aside {
		o.T.Fatalf("%s: wallet %s, bond %s, set aside %s; want %s, %s and %s", when, w, b, a, wallet, inBond, aside)
	}
}

// covers reports whether the bond can stand in for another lease.
func (o operator) covers(n money.Nano) (yes bool) {
	o.T.Helper()
	s := bond.Stakes{Currency: "EUR", Leases: []bond.Stake{{Lease: id.New[id.Lease](), Operator: o.payer.Org, Amount: n}}}
	o.Tx(func(ctx context.Context, tx *db.Tx) error {
		books, err := ledger.Lock(ctx, tx, s.Accounts()...)
		if err == nil {
			yes = s.Covered(books)
		}
		return err
	})
	return yes
}

// What a dispute misses in the wallet is claimed in the bond, and what is reserved for a lease when it is released;
// meanwhile the bond stands in for nothing new. If the dispute is won, everything returns to where it came from.
func TestDispute_ClaimsTheBond(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	for _, won := range []bool{true, false} {
		o, dp := newOperator(t)
		o.has("disputed", 0, 0, -35*u) // 65.00 were set aside, and Stripe has taken 100.00
		o.must(o.move(o.hold, o.bond, 25*u))
		if o.covers(1) {
			t.Fatal("claimed money stands in for a lease")
		}
		o.collectAll()
		if st := o.standing(); st.Short != 10*u {
			t.Fatalf("%s are missing", st.Short)
		}
		o.decide(dp, won)
		if won {
			o.has("won", 50*u, 40*u, 0)
			if !o.covers(40 * u) {
				t.Fatal("the bond is not free again")
			}
			continue
		}
		if n := o.Balance(ledger.BadDebt("EUR")); n != -10*u {
			t.Fatalf("bad debt %s", n)
		}
		o.must(o.move(ledger.StripeClearing("EUR"), o.bond, 15*u))
		o.collectAll()
		o.has("repaid from the bond", 0, 5*u, 0)
		if n := o.Balance(ledger.BadDebt("EUR")); n != 0 || !o.covers(5*u) {
			t.Fatalf("bad debt %s beside a bond of the debtor", n)
		}
	}
}

// The database refuses to change what the ledger's entries name, and steps that a payment, refund, payout or dispute
// does not take.
func TestPayments_DatabaseRefuses(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s := newShop(t, "pm_card_visa")
	top := s.topUp(100 * u)
	s.topUp(50 * u)
	if _, err := s.giveBack(120 * u); err != nil {
		t.Fatal(err)
	}
	s.dispute(s.topUp(10 * u))
	s.Exec("INSERT INTO payout (id, org_id, stripe_account, amount, currency, state) VALUES ($1, $2, 'acct_x', 5, 'EUR', "+
		"'paid')", id.New[id.Payout](), s.payer.Org)
	for _, sql := range []string{
		"UPDATE topup SET amount = amount + 1",
		"UPDATE topup SET tax = tax + 1",
		"UPDATE topup SET state = 'failed'",
		"UPDATE topup SET payment_intent_id = 'pi_other' || id",
		"DELETE FROM topup",
		"TRUNCATE topup CASCADE",
		"UPDATE refund SET amount = 1",
		"UPDATE refund SET state = 'pending'",
		"DELETE FROM refund",
		"INSERT INTO refund (id, org_id, topup_id, amount, currency, state) SELECT gen_random_uuid(), org_id, id, " +
			"30000000001, currency, 'pending' FROM topup WHERE id = '" + top.ID.UUID().String() + "'",
		"INSERT INTO refund (id, org_id, topup_id, amount, currency, state) SELECT gen_random_uuid(), org_id, id, " +
			"1, 'USD', 'pending' FROM topup WHERE id = '" + top.ID.UUID().String() + "'",
		"UPDATE payout SET amount = 6",
		"UPDATE payout SET state = 'failed'",
		"UPDATE payout SET reversed = 1",
		"INSERT INTO payout_reversal (id, payout_id, amount) SELECT 'trr_1', id, 1 FROM payout",
		"DELETE FROM payout",
		"UPDATE dispute SET amount = amount + 1",
		"UPDATE dispute SET held = amount + 1",
		"UPDATE dispute SET held_bond = held + 1",
		"UPDATE dispute SET debt = 1",
		"UPDATE dispute SET state = 'released'",
		"DELETE FROM dispute",
	} {
		if _, err := s.DB.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: done", sql)
		}
	}
	for _, sql := range []string{
		"UPDATE topup SET created_at = created_at - interval '1 day', tax_vat_id = ''",
		"WITH r AS (INSERT INTO payout_reversal (id, payout_id, amount) SELECT 'trr_1', id, 2 FROM payout) " +
			"UPDATE payout SET reversed = 2",
		"INSERT INTO refund (id, org_id, topup_id, amount, currency, state) SELECT gen_random_uuid(), org_id, id, " +
			"30000000000, currency, 'pending' FROM topup WHERE id = '" + top.ID.UUID().String() + "'",
		"UPDATE dispute SET held = 1",
		"UPDATE dispute SET state = 'lost'",
		"UPDATE dispute SET debt = 2",
	} {
		s.Exec(sql)
	}
	for _, sql := range []string{
		"UPDATE dispute SET debt = 3",
		"UPDATE dispute SET held = 0",
		"UPDATE dispute SET state = 'won'",
	} {
		if _, err := s.DB.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: done", sql)
		}
	}
}
