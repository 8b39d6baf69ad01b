package money

import (
	"slices"
	"testing"
)

// Only currencies with two decimals and a unit of ordinary worth are taken: Stripe counts yen in whole yen, and dinars
// in mills.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(Currencies) {
		t.Error("Currencies is not sorted")
	}
	for code, good := range map[string]bool{
		"EUR":  true,
		"USD":  true,
		"CZK":  true,
		"JPY":  false,
		"KRW":  false,
		"KWD":  false,
		"BHD":  false,
		"IDR":  false,
		"VND":  false,
		"HUF":  false,
		"ISK":  false,
		"eur":  false,
		"":     false,
		"XXX":  false,
		"EURO": false,
	} {
		if err := CheckCurrency(code); (err == nil) != good {
			t.Errorf("%q: %v", code, err)
		}
	}
}
