package account

import (
	"fmt"
	"regexp"
	"strings"
)

// vatForm is how the VAT ids of a country look.
type vatForm struct {
	pattern *regexp.Regexp // of the whole id, with its letters in front
	example string
}

func vat(pattern, example string) vatForm {
	return vatForm{regexp.MustCompile(`^(?:` + pattern + `)$`), example}
}

// vatForms are the member states of the EU, as the EU's VIES describes them, and the United Kingdom with Northern
// Ireland (XI). Whether an id was given out and to whom, neither form nor check digits show; VIES does, and is not
// asked.
var vatForms = map[string]vatForm{
	"AT": vat(`ATU\d{8}`, "ATU13585627"),
	"BE": vat(`BE[01]\d{9}`, "BE0428759497"),
	"BG": vat(`BG\d{9,10}`, "BG123456789"),
	"CY": vat(`CY\d{8}[A-Z]`, "CY12345678X"),
	"CZ": vat(`CZ\d{8,10}`, "CZ12345678"),
	"DE": vat(`DE\d{9}`, "DE123456788"),
	"DK": vat(`DK\d{8}`, "DK13585628"),
	"EE": vat(`EE\d{9}`, "EE100931558"),
	"ES": vat(`ES(?:[A-Z]\d{7}[A-Z0-9]|\d{8}[A-Z])`, "ESX1234567X"),
	"FI": vat(`FI\d{8}`, "FI20774740"),
	"FR": vat(`FR[0-9A-HJ-NP-Z]{2}\d{9}`, "FR32123456789"),
	"GB": vat(`(?:GB|XI)(?:\d{9}|\d{12}|GD\d{3}|HA\d{3})`, "GB123456789"),
	"GR": vat(`EL\d{9}`, "EL094259216"),
	"HR": vat(`HR\d{11}`, "HR33392005961"),
	"HU": vat(`HU\d{8}`, "HU12892312"),
	"IE": vat(`IE(?:\d{7}[A-Z]{1,2}|\d[A-Z+*]\d{5}[A-Z])`, "IE1234567WA"),
	"IT": vat(`IT\d{11}`, "IT00743110157"),
	"LT": vat(`LT(?:\d{9}|\d{12})`, "LT123456789"),
	"LU": vat(`LU\d{8}`, "LU15027442"),
	"LV": vat(`LV\d{11}`, "LV12345678901"),
	"MT": vat(`MT\d{8}`, "MT11679112"),
	"NL": vat(`NL\d{9}B\d{2}`, "NL004495445B01"),
	"PL": vat(`PL\d{10}`, "PL8567346215"),
	"PT": vat(`PT\d{9}`, "PT501964843"),
	"RO": vat(`RO[1-9]\d{1,9}`, "RO18547290"),
	"SE": vat(`SE\d{10}01`, "SE123456789701"),
	"SI": vat(`SI\d{8}`, "SI50223054"),
	"SK": vat(`SK\d{10}`, "SK2022749619"),
}

// elsewhere is what a tax id of any other country may be.
var elsewhere = regexp.MustCompile(`^[A-Z0-9/+*]{4,24}$`)

// NormalVATID is the VAT id as it is kept: upper case, without the spaces, dots and hyphens people write in it; ""
// stays "". The error says, for people, how an id of the country (ISO 3166-1 alpha-2) looks, or that its check digits
// are wrong.
func NormalVATID(country, vatID string) (string, error) {
	n := strings.ToUpper(strings.NewReplacer(" ", "", ".", "", "-", "").Replace(strings.TrimSpace(vatID)))
	if n == "" {
		return "", nil
	}
	f, known := vatForms[country]
	switch {
	case known && !f.pattern.MatchString(n):
		return "", fmt.Errorf("is not a VAT id of %s, which looks like %s", country, f.example)
	case !known && !elsewhere.MatchString(n):
		return "", fmt.Errorf("has to have 4 to 24 letters and digits")
	}
	if holds := vatChecks[country]; holds != nil && !holds(n[2:]) {
		return "", fmt.Errorf("is not a VAT id of %s: its check digits do not fit, so a digit is mistyped", country)
	}
	return n, nil
}
