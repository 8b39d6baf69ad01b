package payout

import (
	"testing"

	"github.com/musterhq/muster/internal/money"
)

// Against the ledger: what is in review and disputed too is held back once, what is released stays back while it is
// disputed, and what was never held twice is paid.
func TestHeld_DisputedAndInReviewOnce(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	x := funded(t, 1000*u)
	x.link()
	x.earn(10 * u) // before the disputed payment
	top := x.topUp(50 * u)
	x.Exec("INSERT INTO dispute (id, org_id, topup_id, amount, held, currency, reason, state, paid_at) VALUES ('dp_1', "+
		"$1, $2, $3, 0, $4, '', 'open', clock_timestamp())",
		x.renter.Org, top.ID, 25*u, eur)
	x.earn(30 * u)
	earn := x.other(40 * u)
	x.payable()
	x.stands("all of the linked renter's is in review, the others' is payable", 0, 40*u, 40*u, 0)
	if s, err := x.p.Standing(t.Context(), x.operator); err != nil || s.Disputed != 0 {
		t.Fatalf("%+v %v", s, err)
	}
	if n := x.run(); n.Amount != 40*u {
		t.Fatalf("%+v", n)
	}
	x.payDue()
	x.sent("the others'", 1, 40*u)
	if err := x.release(x.review().ID); err != nil {
		t.Fatal(err)
	}
	x.payable()
	x.stands("released, and 25 of it are disputed", 25*u, 0, 15*u, 0)
	earn(3 * u)
	x.payable()
	x.payDue()
	x.sent("what is not disputed", 2, 58*u)
	x.Exec("UPDATE dispute SET state = 'won'")
	x.payable()
	x.payDue()
	x.sent("decided", 3, 83*u)
}
