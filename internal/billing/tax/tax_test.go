package tax

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestFlatRates(t *testing.T) {
	t.Parallel()
	rates, err := ParseRates("eu, US=8.25%", func(c string) bool { return len(c) == 2 })
	if err != nil {
		t.Fatal(err)
	}
	atHome, nowhere := Flat{Home: "DE", Rates: rates}, Flat{Rates: rates}
	abroad := Flat{Home: "US", Rates: rates}
	for _, c := range []struct {
		name    string
		f       Flat
		country string
		vat     string
		want    Tax
	}{
		{"at home", atHome, "DE", "", Tax{1900, 190_000, "VAT", "DE", "", Home}},
		{"at home, a business", atHome, "DE", "DE123456789", Tax{1900, 190_000, "VAT", "DE", "", Home}},
		{"elsewhere in the EU", atHome, "FI", "", Tax{2550, 255_000, "VAT", "FI", "", Destination}},
		{"elsewhere in the EU, a business", atHome, "FR", "FR12345678901",
			Tax{0, 0, "", "FR", "FR12345678901", ReverseCharge}},
		{"outside", atHome, "CH", "CHE123456789", Tax{0, 0, "", "CH", "", Outside}},
		{"outside, and tax is collected there", atHome, "US", "", Tax{825, 82_500, "Tax", "US", "", Destination}},
		{"untold", atHome, "", "", Tax{1900, 190_000, "VAT", "DE", "", Untold}},
		{"untold, and no home", nowhere, "", "", Tax{Reason: Untold}},
		{"no home", nowhere, "DE", "", Tax{1900, 190_000, "VAT", "DE", "", Destination}},
		{"a merchant outside, a business in the EU", abroad, "DE", "DE123456789",
			Tax{0, 0, "", "DE", "DE123456789", ReverseCharge}},
		{"a merchant outside, at home", abroad, "US", "", Tax{825, 82_500, "Tax", "US", "", Home}},
	} {
		got, err := c.f.Tax(t.Context(), Sale{Kind: TopUp, Country: c.country, VATID: c.vat, Cents: 10_000, Currency: "EUR"})
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", c.name, got, err, c.want)
		}
	}
	if got, err := (None{}).Tax(t.Context(), Sale{
		Country: "DE",
		Cents:   1,
	}); err != nil || got != (Tax{Country: "DE", Reason: Off}) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestFlat_ParseRates(t *testing.T) {
	t.Parallel()
	known := func(c string) bool { return InEU(c) || c == "GB" || c == "US" }
	for in, want := range map[string]map[string]int64{
		"":                    nil,
		"off":                 nil,
		"DE=19%":              {"DE": 190_000},
		"de = 7.5 % , GB=20%": {"DE": 75_000, "GB": 200_000},
		"US=0.0001%":          {"US": 1},
		"US=100%":             {"US": 1_000_000},
	} {
		got, err := ParseRates(in, known)
		if err != nil || len(got) != len(want) {
			t.Errorf("%q: %v %v", in, got, err)
		}
		for c, ppm := range want {
			if got[c] != ppm {
				t.Errorf("%q: %v", in, got)
			}
		}
	}
	if got, err := ParseRates("eu,DE=7%", known); err != nil || len(got) != 27 || got["DE"] != 70_000 ||
		got["FR"] != 200_000 || EU()["DE"] != 190_000 {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []string{"DE", "DE=19", "DE=-1%", "DE=101%", "DE=1.23456%", "DE=%", "DE=1.%", "XX=5%",
		"DE=19%;FR=20%", "DE=1e1%", ",", "DE=99999999999999999999%"} {
		if got, err := ParseRates(bad, known); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	for ppm, want := range map[int64]string{
		0:         "0",
		190_000:   "19",
		255_000:   "25.5",
		82_500:    "8.25",
		1:         "0.0001",
		1_000_000: "100",
	} {
		if got := Percent(ppm); got != want {
			t.Errorf("%d is %q", ppm, got)
		}
	}
}

// Rounding is half up, exact for any amount.
func TestTax_RoundedHalfUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cents, ppm, want int64 }{{10_000, 190_000, 1900}, {1, 190_000, 0}, {2, 250_000, 1},
		{3, 190_000, 1}, {50, 190_000, 10}, {0, 190_000, 0}, {5, 0, 0}} {
		if got := Of(c.cents, c.ppm); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		cents, ppm := r.Int64N(math.MaxInt64), r.Int64N(1_000_001)
		want := new(big.Int).Mul(big.NewInt(cents), big.NewInt(ppm))
		want.Add(want, big.NewInt(500_000)).Quo(want, big.NewInt(1_000_000))
		if got := Of(cents, ppm); got != want.Int64() {
			t.Fatalf("%d at %d: %d, want %s", cents, ppm, got, want)
		}
	}
}

// Whatever parts a payment goes back in, and whichever of them fail in between: never more tax than was charged, within
// a cent of the proportion at every step, and all of it once all is back.
func TestTax_ReturnedInProportion(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 3_000 {
		whole := 1 + r.Int64N(20_000)
		tax := Of(whole, r.Int64N(300_001))
		type part struct{ net, tax int64 }
		var parts []part
		var net, gone int64
		failed := false
		for step := 0; net < whole; step++ {
			if len(parts) > 0 && r.IntN(8) == 0 && step < 200 {
				i := r.IntN(len(parts))
				net, gone, failed = net-parts[i].net, gone-parts[i].tax, true
				parts = append(parts[:i], parts[i+1:]...)
				continue
			}
			n := 1 + r.Int64N(min(whole-net, 1+whole/3))
			back := Back(tax, whole, net, n, gone)
			net, gone = net+n, gone+back
			parts = append(parts, part{n, back})
			exact := new(big.Int).Quo(new(big.Int).Mul(big.NewInt(tax), big.NewInt(net)), big.NewInt(whole)).Int64()
			if back < 0 || gone > tax || !failed && gone != exact {
				t.Fatalf("%d of %d is back, with %d of %d tax (exactly %d)", net, whole, gone, tax, exact)
			}
		}
		if gone != tax {
			t.Fatalf("all of %d is back, with %d of %d tax", whole, gone, tax)
		}
	}
}
