package account

import (
	"regexp"
	"testing"
)

func TestCountries(t *testing.T) {
	t.Parallel()
	list, seen := Countries(), map[string]bool{}
	if len(list) != 249 {
		t.Errorf("%d countries; ISO 3166-1 has 249", len(list))
	}
	for _, c := range list {
		if !regexp.MustCompile(`^[A-Z]{2}$`).MatchString(c.Code) || c.Name == "" || seen[c.Code] || !IsCountry(c.Code) {
			t.Errorf("%+v", c)
		}
		seen[c.Code] = true
	}
	if CountryName("DE") != "Germany" || CountryName("XX") != "XX" || IsCountry("de") || IsCountry("XX") {
		t.Error("a country has another name, or one that does not exist is known")
	}
}
