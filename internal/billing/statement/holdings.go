package statement

import (
	"context"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
)

// Part is what one of the ledger' sides is made of.
type Part string

// What there is.
const (
	AtStripe   Part = "at_stripe"
	InBank     Part = "in_bank"
	Receivable Part = "receivable" // used, to be paid afterwards
)

// Whose it is.
const (
	RentersFree    Part = "renters_free"
	RentersHeld    Part = "renters_held"     // for clusters
	OperatorsYoung Part = "operators_young"  // in the holdback
	OperatorsDue   Part = "operators_due"    // payable
	OperatorsBond  Part = "operators_bond"   // kept for their hosts' failures in gangs
	OnItsWay       Part = "on_its_way"       // to operators and renters
	DisputedOrKept Part = "disputed_or_kept" // disputed, or withheld by a review
	InSuspense     Part = "in_suspense"
	TaxOffices     Part = "tax_offices"
	Platform       Part = "platform" // what no one else has a claim to, after the platform's costs
)

// Holding is one part and its amount, nano-units of any size.
type Holding struct {
	Part   Part
	Amount *big.Int
}

// kindsOf is which accounts a part is; a credit balance counts sign times. The platform's own part is the rest.
var kindsOf = []struct {
	part  Part
	sign  int64
	kinds []ledger.Kind
}{
	{AtStripe, -1, []ledger.Kind{ledger.KindStripeClearing}},
	{InBank, -1, []ledger.Kind{ledger.KindBank}},
	{Receivable, -1, []ledger.Kind{ledger.KindReceivable}},
	{RentersFree, 1, []ledger.Kind{ledger.KindRenterWallet}},
	{RentersHeld, 1, []ledger.Kind{ledger.KindRenterHold}},
	{OperatorsYoung, 1, []ledger.Kind{ledger.KindHostPending}},
	{OperatorsDue, 1, []ledger.Kind{ledger.KindHostPayable}},
	{OperatorsBond, 1, []ledger.Kind{ledger.KindHostBond, ledger.KindBondHold}},
	{OnItsWay, 1, []ledger.Kind{ledger.KindTransfers, ledger.KindRefunds}},
	{DisputedOrKept, 1, []ledger.Kind{ledger.KindDisputeHold, ledger.KindWithheld}},
	{InSuspense, 1, []ledger.Kind{ledger.KindSuspense}},
	{TaxOffices, 1, []ledger.Kind{ledger.KindTaxPayable}},
}

// Holdings returns what the platform has in a currency and whose it is. Both sides come to the same: what no one else
// has a claim to is the platform's.
func Holdings(totals []ledger.Total, currency string) (assets, claims []Holding) {
	ours := new(big.Int)
	for _, k := range kindsOf {
		n := new(big.Int)
		for _, t := range totals {
			if t.Currency == currency && slices.Contains(k.kinds, t.Kind) {
				n.Add(n, new(big.Int).Mul(t.Amount, big.NewInt(k.sign)))
			}
		}
		if k.sign < 0 {
			assets, ours = append(assets, Holding{k.part, n}), ours.Add(ours, n)
		} else {
			claims, ours = append(claims, Holding{k.part, n}), ours.Sub(ours, n)
		}
	}
	return assets, append(claims, Holding{Platform, ours})
}

// Trial adds up the whole ledger, and keeps what came out for a while: what is seen often need not be summed each time.
type Trial struct {
	d   *db.DB
	age time.Duration
	now func() time.Time

	mu   sync.Mutex // concurrent callers wait for the sum
	at   time.Time
	last ledger.TrialBalance
}

// NewTrial makes one whose answers are at most age old; 0: always new. It reads nothing.
func (s *Statements) NewTrial(age time.Duration, now func() time.Time) *Trial {
	return &Trial{d: s.d, age: age, now: now}
}

// Read returns the trial balance, and when it was added up.
func (t *Trial) Read(ctx context.Context) (ledger.TrialBalance, time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if old := now.Sub(t.at); !t.at.IsZero() && 0 <= old && old < t.age {
		return t.last, t.at, nil
	}
	b, err := ledger.Check(ctx, t.d)
	if err != nil {
		return ledger.TrialBalance{}, time.Time{}, err
	}
	t.at, t.last = now, b
	return b, now, nil
}
