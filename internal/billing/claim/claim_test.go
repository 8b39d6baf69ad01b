package claim

import (
	"testing"

	"github.com/musterhq/muster/internal/money"
)

// Pending earnings answer for a claim first, then payable ones, then the bond; together they keep the whole claim.
func TestClaims_PendingThenPayableThenBond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claims           Claims
		pending, payable money.Nano
		pays, onBond     money.Nano
	}{
		{Claims{}, 10, 20, 20, 0},
		{Claims{Disputed: 10}, 10, 20, 20, 0},
		{Claims{Disputed: 15}, 10, 20, 15, 0},
		{Claims{InReview: 15}, 10, 20, 15, 0},
		{Claims{Disputed: 10, InReview: 15}, 10, 20, 5, 0},
		{Claims{Disputed: 30, InReview: 15}, 10, 20, 0, 15},
		{Claims{InReview: 85}, 0, 0, 0, 85},
		{Claims{}, -30, 20, 0, 10},
		{Claims{Disputed: 5}, -30, 20, 0, 15},
		{Claims{Owed: 12}, 10, 20, 8, 0},
		{Claims{Owed: 50}, 10, 20, 0, 0},
	} {
		if pays, onBond := c.claims.Payable(c.pending, c.payable), c.claims.OnBond(c.pending, c.payable); pays != c.pays ||
			onBond != c.onBond {
			t.Errorf("%+v of %d pending and %d payable: %d is paid, %d of the bond claimed; want %d and %d", c.claims,
				c.pending, c.payable, pays, onBond, c.pays, c.onBond)
		}
	}
}
