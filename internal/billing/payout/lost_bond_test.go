package payout

import (
	"testing"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

func (x *admin) withdraw(n money.Nano) error {
	return billingtest.Err(bond.New(x.DB, eur).Withdraw(x.T.Context(), x.owner, n, idem.Request{}))
}

// stolen returns a world whose operator keeps all of 85.00 in its bond that a renter paid with a card whose owner
// disputes it.
func stolen(t *testing.T) (x *admin, dispute string) {
	t.Helper()
	const u = money.Unit
	x = newAdmin(t)
	x.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", x.owner.User,
		x.owner.User.String()+"@b.c")
	top := x.topUp(100 * u)
	x.onboard()
	x.keepAll()
	x.earn(85 * u)
	x.Move(ledger.Wallet(x.renter.Org, eur), ledger.Fee(eur), 15*u)
	x.fake.Balance.Stray("topup", "eur", 100_000) // others' money at Stripe
	x.payable()
	if kept := x.Balance(ledger.HostBond(x.operator, eur)); kept != 85*u {
		t.Fatalf("%s are in the bond", kept)
	}
	return x, x.openDispute(x.intent(top.ID), 100*u)
}

func (x *admin) lose(dispute string) {
	x.T.Helper()
	x.fake.Disputes.Decide(dispute, false)
	x.Deliver(x.in, x.fake.Webhooks.Deliveries())
}

// kept asserts that nothing of the bond of 85.00 can be withdrawn or paid out, whatever else is pending.
func (x *admin) kept(when string) {
	x.T.Helper()
	if err := x.withdraw(85 * money.Unit); !fault.Is(err, fault.InsufficientFunds) {
		x.T.Fatalf("%s: 85.00 are withdrawn: %v", when, err)
	}
	s, err := bond.New(x.DB, eur).Standing(x.T.Context(), x.owner, 1)
	if err != nil || s.Free-s.Claimed > money.Unit {
		x.T.Fatalf("%s: %s of %s are claimed: %v", when, s.Claimed, s.Free, err)
	}
	x.payDue()
	x.sent(when, 0, 0)
}

// What a lost dispute claims cannot leave through the bond: while the dispute is open, once it is lost, before and
// after a review has taken it over, and however much later. A person decides.
func TestReview_LostDisputeReachesTheBond(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	x, dp := stolen(t)
	x.kept("disputed")
	x.payable()
	x.kept("disputed, after a pass")
	x.lose(dp)
	x.kept("lost")
	x.Exec("UPDATE dispute SET closed_at = closed_at - interval '61 days', created_at = created_at - interval '61 days'")
	x.kept("lost for 61 days, and no pass since")
	x.other(1 * u)
	x.payable()
	x.kept("in review")
	r := x.review()
	if r.InReview != 85*u {
		t.Fatalf("%+v", r)
	}
	if err := x.refuse(r.ID); err != nil {
		t.Fatal(err)
	}
	if kept, withheld := x.Balance(ledger.HostBond(x.operator, eur)),
		x.Balance(ledger.Withheld(eur)); kept != u || withheld != 85*u {
		t.Fatalf("refused: %s in the bond, %s withheld; of 86.00 that were earned, 85.00 are refused", kept, withheld)
	}
	if b, err := ledger.Check(t.Context(), x.DB); err != nil || !b.Balanced() {
		t.Fatal(b.Problems, err)
	}
}

// What a person releases can be withdrawn; later passes do not hold it again.
func TestReview_ReleasedBondIsFree(t *testing.T) {
	t.Parallel()
	x, dp := stolen(t)
	x.lose(dp)
	x.payable()
	if err := x.release(x.review().ID); err != nil {
		t.Fatal(err)
	}
	x.payable()
	x.payable()
	if err := x.withdraw(85 * money.Unit); err != nil {
		t.Fatal(err)
	}
	x.payDue()
	x.sent("released", 1, 85*money.Unit)
}

// A bond that is reserved for a lease answers once it is released: what was refused is made good from it by the next
// pass, before it can stand in for another lease.
func TestReview_ReservedBondAnswersLater(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	x, dp := stolen(t)
	hold := ledger.BondHold(x.operator, id.New[id.Lease](), eur)
	x.Move(ledger.HostBond(x.operator, eur), hold, 60*u)
	x.lose(dp)
	x.payable()
	r := x.review()
	if r.InReview != 85*u {
		t.Fatalf("%+v", r)
	}
	if err := x.refuse(r.ID); err != nil {
		t.Fatal(err)
	}
	if kept, pending := x.Balance(ledger.HostBond(x.operator, eur)),
		x.Balance(ledger.HostPending(x.operator, eur))+x.Balance(ledger.HostPayable(x.operator, eur)); kept != 0 ||
		pending != -60*u {
		t.Fatalf("%s in the bond, %s of earnings", kept, pending)
	}
	x.Move(hold, ledger.HostBond(x.operator, eur), 60*u)
	if err := x.withdraw(u); !fault.Is(err, fault.InsufficientFunds) {
		t.Fatal(err)
	}
	x.payable()
	if kept := x.Balance(ledger.HostBond(x.operator, eur)); kept != 0 {
		t.Fatalf("%s in the bond of an operator who owes them", kept)
	}
}

// The look at a loss ends when a review has taken it over. What an operator earns from others after that is its own,
// even if all that the lost payment paid for had been paid out before.
func TestReview_LossIsTakenOverOnce(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	x := funded(t, 500*u)
	top := x.topUp(100 * u)
	x.earn(85 * u)
	x.payable()
	x.payDue()
	x.sent("before the dispute", 1, 85*u)
	x.lose(x.openDispute(x.intent(top.ID), 100*u))
	x.payable() // nothing is left that the review could hold
	x.other(30 * u)
	x.payable()
	x.payDue()
	x.sent("another renter's", 2, 115*u)
}

// A review that was opened for another reason takes over what had matured by then and is not paid out, too.
func TestReview_LossBehindEarlierReview(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	x, dp := stolen(t)
	x.link() // of the renter and the operator: what had matured before is not reviewed
	hold := ledger.Hold(x.renter.Org, id.New[id.Cluster](), eur)
	x.Move(ledger.StripeClearing(eur), hold, u)
	x.Move(hold, ledger.HostPending(x.operator, eur), u)
	x.payable()
	x.lose(dp)
	x.payable()
	x.payable()
	x.kept("lost")
}

// An operator who owes for a disputed payment of its own is not paid out what it owes, and keeps no new bond.
func TestPayout_OwnDisputeIsKeptBack(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	x := funded(t, 500*u)
	x.renter.Org = x.operator // the operator rents, too
	top := x.topUp(100 * u)
	x.Move(ledger.Wallet(x.operator, eur), ledger.Fee(eur), 100*u)
	x.keepAll()
	x.lose(x.openDispute(x.intent(top.ID), 100*u))
	x.other(130 * u)
	x.payable()
	if kept := x.Balance(ledger.HostBond(x.operator, eur)); kept != 0 {
		t.Fatalf("%s are kept as bond", kept)
	}
	if n := x.run(); n.Amount != 30*u {
		t.Fatalf("%+v", n)
	}
	x.payDue()
	x.sent("less what it owes", 1, 30*u)
}
