package stripe

import (
	"fmt"

	"github.com/musterhq/muster/internal/money"
)

// MaxCents bounds the amounts that are accepted from Stripe, in either direction: a billion units, ten times the
// largest possible charge. A larger amount is an error, and the ledger could not hold many of them.
const MaxCents = 100_000_000_000

// FromCents converts an amount of Stripe's. It returns an error if the amount is larger than MaxCents.
func FromCents(cents int64) (money.Nano, error) {
	if cents > MaxCents || cents < -MaxCents {
		return 0, fmt.Errorf("amount of %d cents from Stripe is out of range", cents)
	}
	return money.Nano(cents) * money.Cent, nil
}
