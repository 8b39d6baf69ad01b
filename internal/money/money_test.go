package money

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestTextRoundTrip(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"0.000000000", "0.000000001", "-0.000000001", "50.000000000", "9223372036.854775807",
		"-9223372036.854775807"} {
		n, err := ParseNano(s)
		if err != nil || n.String() != s {
			t.Errorf("%s reads as %s, %v", s, n, err)
		}
	}
	if n, err := ParseNano("12.5"); err != nil || n != 12*Unit+Unit/2 {
		t.Errorf("12.5: %v %v", n, err)
	}
	if m, err := ParseMicro("2.400000000"); err != nil || m != 2_400_000 {
		t.Errorf("trailing zeros beyond the last decimal are no more digits: %v %v", m, err)
	}
}

func TestParse_Refused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "-", ".", "1.", ".5", "1e3", "1,000", " 1", "+1", "0x1", "1.0000000001",
		"9223372036.854775808", "10000000000000", "١"} {
		if n, err := ParseNano(s); err == nil {
			t.Errorf("%q reads as %s", s, n)
		}
	}
	for s, want := range map[string]error{
		"10000000000000": errTooLarge,
		"99999999999":    errTooLarge,
		"€5":             errSyntax,
		"5 EUR":          errSyntax,
		"5,00":           errSyntax,
		"NaN":            errSyntax,
	} {
		if _, err := ParseNano(s); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", s, err, want)
		}
	}
	if _, err := ParseMicro("0.0000001"); err == nil {
		t.Error("a price with seven decimals is taken")
	}
}

// TestCost_Exact compares with arithmetic of any size.
func TestCost_Exact(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		rate, ms := Micro(rand.Int64N(1_000_000_000)), rand.Int64N(100*365*24*3600*1000)
		num := new(big.Int).Mul(big.NewInt(int64(rate)), big.NewInt(ms))
		want := new(big.Int).Quo(num, big.NewInt(NumeratorPerNano))
		if !want.IsInt64() {
			continue
		}
		if got := CostOf(rate, ms); got != Nano(want.Int64()) || Posted(num) != got {
			t.Fatalf("%d × %d: %d, want %s", rate, ms, got, want)
		}
		if up := CostCeil(rate, ms) - CostOf(rate, ms); up < 0 || up > 1 {
			t.Fatalf("rounding up adds %d", up)
		}
		if rate > 0 {
			if left := MillisOf(CostOf(rate, ms), rate); left > ms || CostOf(rate, left) > CostOf(rate, ms) {
				t.Fatalf("what %d ms cost buys %d ms", ms, left)
			}
		}
	}
}

// TestShare_Telescopes: parts of a growing sum, posted step by step, never lose or gain against the share of the whole.
func TestShare_Telescopes(t *testing.T) {
	t.Parallel()
	for range 200 {
		ppm := rand.Int64N(1_000_001)
		var total, host Nano
		for range 100 {
			before := Share(total, ppm)
			total += Nano(rand.Int64N(1e15))
			host += Share(total, ppm) - before
		}
		if host != Share(total, ppm) || host > total {
			t.Fatalf("%d ppm of %s: %s", ppm, total, host)
		}
	}
}

func FuzzParseNano(f *testing.F) {
	f.Add("12.50")
	f.Add("-0.000000001")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNano(s)
		if err != nil {
			return
		}
		if again, err := ParseNano(n.String()); err != nil || again != n {
			t.Errorf("%q reads as %s, which reads as %s, %v", s, n, again, err)
		}
	})
}

func TestPlain(t *testing.T) {
	for n, want := range map[Nano]string{
		0:                    "0.00",
		25 * Unit:            "25.00",
		Unit / 2:             "0.50",
		5_333_333:            "0.005333333",
		-100 * Unit:          "-100.00",
		9*Unit + 120_000_000: "9.12",
		1:                    "0.000000001",
	} {
		if got := n.Plain(); got != want {
			t.Errorf("%s reads %q in a sentence, want %q", n, got, want)
		}
	}
	if got := Micro(2_400_000).Plain() + " " + Micro(345_000).Plain(); got != "2.40 0.345" {
		t.Errorf("prices read %q in a sentence", got)
	}
}
