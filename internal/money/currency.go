package money

import (
	"fmt"
	"slices"
	"strings"
)

// Currencies are the currencies in which a platform can run, by ISO 4217 code, sorted: those with two decimals, as
// cents are assumed everywhere, and with a unit between a few cents and a few dollars, so that limits in whole units
// (the smallest and the largest top-up) and amounts in int64 nano-units make sense. Currencies with no decimals (JPY,
// KRW), with three (KWD, BHD), and those whose unit is a fraction of a cent (IDR, VND) would be charged wrongly or
// overflow.
var Currencies = []string{
	"AED", "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "ILS", "MXN", "MYR", "NOK", "NZD", "PLN",
	"QAR", "RON",
	"SAR", "SEK", "SGD", "THB", "TRY", "USD", "ZAR",
}

// CheckCurrency returns an error for a currency in which a platform cannot run. code is upper case.
func CheckCurrency(code string) error {
	if slices.Contains(Currencies, code) {
		return nil
	}
	return fmt.Errorf("the currency %q is not supported: it must be one of %s (two decimals are assumed everywhere)", code,
		strings.Join(Currencies, ", "))
}
