package account

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed countries.txt
var countryList string

// Country is one of ISO 3166-1.
type Country struct {
	Code string // two capital letters
	Name string // in English
}

// countries are all countries in the order of their names.
var countries = parseCountries(countryList)

func parseCountries(list string) (out []Country) {
	for line := range strings.Lines(list) {
		code, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		out = append(out, Country{code, name})
	}
	return out
}

// Countries returns all countries in the order of their names.
func Countries() []Country { return slices.Clone(countries) }

// IsCountry reports whether code is one of ISO 3166-1 alpha-2, in upper case.
func IsCountry(code string) bool {
	return slices.ContainsFunc(countries, func(c Country) bool { return c.Code == code })
}

// CountryName returns the name of a country, or the code if there is no such country.
func CountryName(code string) string {
	if i := slices.IndexFunc(countries, func(c Country) bool { return c.Code == code }); i >= 0 {
		return countries[i].Name
	}
	return code
}
