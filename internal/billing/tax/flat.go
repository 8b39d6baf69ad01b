package tax

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Flat charges one rate per country. Its rules are those of services sold electronically in the EU:
//
//   - in the merchant's own country its rate is charged, to everybody;
//   - a business in another country of the EU, that is a buyer with a VAT id, accounts for the tax itself;
//   - anybody else is charged the rate of their own country, where it has one;
//   - a buyer who gave no country is taxed as one in the merchant's.
//
// The form and check digits of a VAT id are trusted (account.NormalVATID): whether it was given out is for the merchant
// to check.
type Flat struct {
	Home  string           // the merchant's country, ISO 3166-1 alpha-2; "": not set
	Rates map[string]int64 // ppm by country; not listed: no tax is collected there
}

// Tax is by the rules above. It never fails.
func (f Flat) Tax(_ context.Context, s Sale) (Tax, error) {
	t := Tax{Country: s.Country, Reason: Destination}
	switch {
	case s.Country == "":
		t.Country, t.Reason = f.Home, Untold
	case s.Country == f.Home:
		t.Reason = Home
	case s.VATID != "" && InEU(s.Country):
		t.Reason, t.VATID = ReverseCharge, s.VATID
		return t, nil
	}
	t.PPM = f.Rates[t.Country]
	switch {
	case t.PPM > 0:
		t.Name, t.Cents = name(t.Country), Of(s.Cents, t.PPM)
	case t.Reason == Untold:
		t.Country = ""
	default:
		t.Reason = Outside
	}
	return t, nil
}

func name(country string) string {
	if InEU(country) || slices.Contains([]string{"GB", "CH", "NO"}, country) {
		return "VAT"
	}
	return "Tax"
}

// euRates are the standard rates of the member states of the EU at the beginning of 2026, in ppm.
var euRates = map[string]int64{
	"AT": 200_000,
	"BE": 210_000,
	"BG": 200_000,
	"CY": 190_000,
	"CZ": 210_000,
	"DE": 190_000,
	"DK": 250_000,
	"EE": 240_000,
	"ES": 210_000,
	"FI": 255_000,
	"FR": 200_000,
	"GR": 240_000,
	"HR": 250_000,
	"HU": 270_000,
	"IE": 230_000,
	"IT": 220_000,
	"LT": 210_000,
	"LU": 170_000,
	"LV": 210_000,
	"MT": 180_000,
	"NL": 210_000,
	"PL": 230_000,
	"PT": 230_000,
	"RO": 210_000,
	"SE": 250_000,
	"SI": 220_000,
	"SK": 230_000,
}

// InEU reports whether a country is a member state of the EU.
func InEU(country string) bool { _, in := euRates[country]; return in }

// EU returns the standard rates of the EU's member states, in ppm by country.
func EU() map[string]int64 { return maps.Clone(euRates) }

var errRates = errors.New(`want a list such as "eu, GB=20%, CH=8.1%" or "DE=19%", or off`)

// ParseRates reads rates as they are configured: "off" (nil), or a list of countries with their rates in percent, of
// which "eu" stands for the EU's member states; a country that is named again has the last rate. known reports which
// countries there are.
func ParseRates(s string, known func(country string) bool) (map[string]int64, error) {
	if s = strings.TrimSpace(s); s == "" || strings.EqualFold(s, "off") {
		return nil, nil
	}
	rates := map[string]int64{}
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		if strings.EqualFold(part, "eu") {
			maps.Copy(rates, euRates)
			continue
		}
		country, percent, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q: %w", part, errRates)
		}
		if country = strings.ToUpper(strings.TrimSpace(country)); !known(country) {
			return nil, fmt.Errorf("%q is not a country: want two letters of ISO 3166-1", country)
		}
		ppm, err := parsePercent(strings.TrimSpace(percent))
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		rates[country] = ppm
	}
	return rates, nil
}

// parsePercent reads "19%" or "25.5%" exactly.
func parsePercent(s string) (ppm int64, err error) {
	number, ok := strings.CutSuffix(s, "%")
	whole, frac, dot := strings.Cut(strings.TrimSpace(number), ".")
	if !ok || whole == "" || dot && frac == "" || len(frac) > 4 || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, errors.New("a rate is 0% to 100% with at most four decimals, such as 19% or 25.5%")
	}
	ppm, err = strconv.ParseInt(whole+frac+strings.Repeat("0", 4-len(frac)), 10, 64)
	if err != nil || ppm > million {
		return 0, errors.New("a rate is at most 100%")
	}
	return ppm, nil
}
