package account_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func TestVATIDs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ country, in, want string }{
		{"AT", "atu 1234 5678", "ATU12345678"}, {"BE", "BE0123.456.789", "BE0123456789"}, {"BG", "BG1234567890", "BG1234567890"},
		{"CY", "CY12345678X", "CY12345678X"}, {"CZ", "CZ123456789", "CZ123456789"}, {"DE", " de 123-456-789 ", "DE123456789"},
		{"DK", "DK12345678", "DK12345678"}, {"EE", "EE123456789", "EE123456789"}, {"ES", "ESX1234567X", "ESX1234567X"},
		{"ES", "ES12345678Z", "ES12345678Z"}, {"FI", "FI12345678", "FI12345678"}, {"FR", "FRXX123456789", "FRXX123456789"},
		{"GR", "EL123456789", "EL123456789"}, {"HR", "HR12345678901", "HR12345678901"}, {"HU", "HU12345678", "HU12345678"},
		{"IE", "IE1234567WA", "IE1234567WA"}, {"IE", "IE1+12345X", "IE1+12345X"}, {"IT", "IT12345678901", "IT12345678901"},
		{"LT", "LT123456789012", "LT123456789012"}, {"LU", "LU12345678", "LU12345678"}, {"LV", "LV12345678901", "LV12345678901"},
		{"MT", "MT12345678", "MT12345678"}, {"NL", "NL123456789B01", "NL123456789B01"}, {"PL", "PL1234567890", "PL1234567890"},
		{"PT", "PT123456789", "PT123456789"}, {"RO", "RO12", "RO12"}, {"SE", "SE123456789001", "SE123456789001"},
		{"SI", "SI12345678", "SI12345678"}, {"SK", "SK1234567890", "SK1234567890"}, {"GB", "XI123456789", "XI123456789"},
		{"CH", "CHE-123.456.789 MWST", "CHE123456789MWST"}, {"US", "12-3456789", "123456789"}, {"DE", "  ", ""},
	} {
		if got, err := account.NormalVATID(tc.country, tc.in); err != nil || got != tc.want {
			t.Errorf("%s %q is %q, %v", tc.country, tc.in, got, err)
		}
	}
	for _, tc := range [][2]string{
		{"DE", "123456789"}, {"DE", "DE12345678"}, {"DE", "DE1234567890"}, {"DE", "FR12345678901"}, {"GR", "GR123456789"}, {"AT", "AT12345678"},
		{"ES", "ES123456789"}, {"FR", "FROI123456789"}, {"NL", "NL123456789001"}, {"SE", "SE123456789012"}, {"US", "<b>"}, {"US", "x"}, {"DE", "DE12345678\u0669"},
	} {
		if got, err := account.NormalVATID(tc[0], tc[1]); err == nil {
			t.Errorf("%s %q is taken as %q", tc[0], tc[1], got)
		}
	}
	if _, err := account.NormalVATID("DE", "12"); err == nil || !strings.Contains(err.Error(), "DE123456789") {
		t.Errorf("the error does not show an example: %v", err)
	}
}

func TestLegalDetailsAreKeptAndErased(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	p, other := register(t, a, "ada@example.com"), register(t, a, "eve@example.com")
	of := func(org id.Org) account.Legal {
		t.Helper()
		l, err := account.LegalOf(t.Context(), d.Q, org)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := of(p.Org); l.Told() {
		t.Fatalf("%+v", l)
	}
	_, err := a.SetLegal(t.Context(), p, account.Legal{Name: " ", Address: []string{" ", strings.Repeat("x", 121)}, Country: "XX"})
	f := fault.From(err)
	if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 3 {
		t.Fatalf("%v", err)
	}
	_, err = a.SetLegal(t.Context(), p, account.Legal{Name: "Ada\x00", Address: []string{"a", "b", "c", "d", "e", "f", "g"}, Country: "DE", VATID: "DE1"})
	if f = fault.From(err); f == nil || len(f.Fields) != 3 {
		t.Fatalf("%v", err)
	}
	for _, vat := range []string{"de 123456789", ""} { // the second replaces the first
		kept, err := a.SetLegal(t.Context(), p, account.Legal{Name: " Ada GmbH ", Address: []string{"Unter den Linden 1", "", "10117 Berlin "}, Country: "de", VATID: vat})
		if err != nil {
			t.Fatal(err)
		}
		want := account.Legal{Name: "Ada GmbH", Address: []string{"Unter den Linden 1", "10117 Berlin"}, Country: "DE", VATID: strings.ToUpper(strings.ReplaceAll(vat, " ", "")), ChangedAt: kept.ChangedAt}
		if diff := cmp.Diff(want, of(p.Org)); diff != "" || kept.ChangedAt.IsZero() {
			t.Fatal(diff)
		}
	}
	if l := of(other.Org); l.Told() {
		t.Fatalf("another org's: %+v", l)
	}
	for range 2 {
		if err := a.EraseLegal(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if l := of(p.Org); l.Told() {
		t.Fatalf("%+v", l)
	}
	trail, err := audit.List(t.Context(), d.Q, p.Org, id.Audit{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	acts := map[string]int{}
	for _, e := range trail {
		acts[e.Action]++
		for _, x := range e.Detail {
			if s, ok := x.(string); ok && (strings.Contains(s, "Ada") || strings.Contains(s, "Linden") || strings.Contains(s, "123456789")) {
				t.Errorf("%s keeps what was to be erased: %v", e.Action, e.Detail)
			}
		}
	}
	if acts["org.legal_set"] != 2 || acts["org.legal_erase"] != 1 {
		t.Errorf("%v", acts)
	}
}
