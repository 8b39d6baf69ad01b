package claim

import (
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// small is one renter's earnings, unit by unit, oldest first: unit i was earned at moment i.
type small struct {
	units    int
	cutoff   int   // units from it on are young
	decided  int   // so many of the oldest a review has let go or refused; the rest below the cutoff is in review
	reviewed bool  // there is a review
	paidAt   []int // of the disputes, latest first
	amount   []int
}

func (s small) waits(unit int, holdback bool) bool {
	return holdback && unit >= s.cutoff || s.reviewed && unit < s.cutoff && unit >= s.decided
}

// claimed reports whether the disputes can claim exactly these units: each unit one place of a dispute whose payment
// was not after it (a matching by augmenting paths, with nothing of the rule's arithmetic).
func (s small) claimed(set uint) bool {
	var places []int // moment of the payment, once per unit of the amount
	for i, at := range s.paidAt {
		for range s.amount[i] {
			places = append(places, at)
		}
	}
	taken := make([]int, len(places))
	for i := range taken {
		taken[i] = -1
	}
	var place func(unit int, seen []bool) bool
	place = func(unit int, seen []bool) bool {
		for p, at := range places {
			if at > unit || seen[p] {
				continue
			}
			seen[p] = true
			if taken[p] < 0 || place(taken[p], seen) {
				taken[p] = unit
				return true
			}
		}
		return false
	}
	for u := range s.units {
		if set&(1<<u) != 0 && !place(u, make([]bool, len(places))) {
			return false
		}
	}
	return true
}

// oracle tries every set of units: of the largest that the disputes can claim, the one of which least waits for no
// other reason.
func (s small) oracle(holdback bool) (total, alone int) {
	total, alone = -1, 0
	for set := range uint(1) << s.units {
		n, extra := 0, 0
		for u := range s.units {
			if set&(1<<u) != 0 {
				n++
				if !s.waits(u, holdback) {
					extra++
				}
			}
		}
		if (n > total || n == total && extra < alone) && s.claimed(set) {
			total, alone = n, extra
		}
	}
	return total, alone
}

// rows returns what the database would return for it.
func (s small) rows(renter id.Org) []Dispute {
	var out []Dispute
	for i, at := range s.paidAt {
		if at >= s.units {
			continue // nothing was earned since: no row
		}
		d := Dispute{
			Renter: renter,
			Amount: money.Nano(s.amount[i]),
			Earned: money.Nano(s.units - at),
			Young:  money.Nano(s.units - max(at, s.cutoff)),
		}
		if s.reviewed {
			d.Reviewable, d.Held = money.Nano(max(0, s.cutoff-at)), money.Nano(max(0, s.cutoff-s.decided))
		}
		out = append(out, d)
	}
	return out
}

// Whatever waits for several reasons waits once: for random renters the rule holds back what trying out every
// assignment of every nano-unit gives, no unit more and none less.
func TestHeld_TwoReasonsCountOnce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 11))
	for range 3000 {
		var rows []Dispute
		var total, alone [2]int
		for range 1 + r.IntN(2) { // renters
			s := small{units: r.IntN(9), reviewed: r.IntN(3) > 0}
			s.cutoff = r.IntN(s.units + 1)
			s.decided = r.IntN(s.cutoff + 1)
			for at := s.units; at >= 0; at-- {
				if len(s.paidAt) < 3 && r.IntN(3) == 0 {
					s.paidAt, s.amount = append(s.paidAt, at), append(s.amount, 1+r.IntN(5))
				}
			}
			rows = append(rows, s.rows(id.New[id.Org]())...)
			for i, holdback := range []bool{false, true} {
				n, extra := s.oracle(holdback)
				total[i], alone[i] = total[i]+n, alone[i]+extra
			}
		}
		for i, holdback := range []bool{false, true} {
			if n, extra := Disputed(rows, holdback); n != money.Nano(total[i]) || extra != money.Nano(alone[i]) {
				t.Fatalf("%+v, holdback %t: %d disputed, %d alone; want %d and %d", rows, holdback, n, extra, total[i], alone[i])
			}
		}
	}
}
