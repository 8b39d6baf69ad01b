package view

import (
	"math/big"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/money"
)

func TestMoneyIsNeverRoundedAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n           money.Nano
		cents, rest string
	}{
		{97_056_000_000, "97.05", "6000000"},
		{1_186_420_000_000, "1,186.42", "0000000"},
		{-1, Minus + "0.00", "0000001"},
		{0, "0.00", "0000000"},
	} {
		if cents, rest := split(c.n, 9); cents != c.cents || rest != c.rest {
			t.Errorf("%d: %s|%s", c.n, cents, rest)
		}
	}
}

// What a page shows with fewer digits than an amount has is rounded, not cut; what can be spent is never rounded up.
func TestMoneyIsRoundedToNearest(t *testing.T) {
	t.Parallel()
	const most = money.Nano(9_223_372_036_854_775_807)
	for _, c := range []struct {
		n                      money.Nano
		decimals               int
		shown, cents, spending string
	}{
		{97_056_740_000, 4, "97.0567", "97.06", "97.05"},
		{97_056_750_000, 4, "97.0568", "97.06", "97.05"},
		{999_995_000_000, 2, "1,000.00", "1,000.00", "999.99"},
		{-97_056_750_000, 4, Minus + "97.0568", Minus + "97.06", Minus + "97.06"},
		{49_999, 4, "0.0000", "0.00", "0.00"},
		{50_000, 4, "0.0001", "0.00", "0.00"},
		{5_000_000, 2, "0.01", "0.01", "0.00"},
		{most, 4, "9,223,372,036.8547", "9,223,372,036.85", "9,223,372,036.85"},
		{176_470_588_235, 9, "176.470588235", "176.47", "176.47"},
	} {
		if cents, rest := split(c.n, c.decimals); cents+rest != c.shown {
			t.Errorf("%d with %d decimals: %s%s, want %s", c.n, c.decimals, cents, rest, c.shown)
		}
		if got := Cents(c.n); got != c.cents {
			t.Errorf("%d in cents: %s, want %s", c.n, got, c.cents)
		}
		if got := CentsDown(c.n); got != c.spending {
			t.Errorf("%d to spend: %s, want %s", c.n, got, c.spending)
		}
		if got := NanoCents(big.NewInt(int64(c.n))); got != c.cents {
			t.Errorf("%d of any size: %s, want %s", c.n, got, c.cents)
		}
	}
}

func TestMemoryIsRoundedToNearest(t *testing.T) {
	t.Parallel()
	for mib, want := range map[int64]string{1_031_800: "1008 GiB", 24_100: "24 GiB", 511: "0 GiB", 81_559: "80 GiB"} {
		if got := GiB(mib); got != want {
			t.Errorf("%d MiB: %s, want %s", mib, got, want)
		}
	}
}

func TestPerSecond(t *testing.T) {
	t.Parallel()
	for m, want := range map[money.Micro]string{19_200_000: "0.005333", 57_600_000: "0.016000", 200_000: "0.000056"} {
		if got := PerSecond(m); got != want {
			t.Errorf("%s per hour is %s per second, want %s", m, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		2300 * time.Millisecond:      "2.3 s",
		20*time.Hour + 5*time.Minute: "20 h 05 min",
		807 * time.Hour:              "33 d 15 h",
	} {
		if got := Dur(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                              "",
		"want 1 to 128":                 "Enter 1 to 128.",
		"is needed, such as busybox:1":  "Image is needed, such as busybox:1.",
		"a quote is not closed":         "A quote is not closed.",
		"Enter the value of HF_TOKEN.":  "Enter the value of HF_TOKEN.",
		"number 2: \"x\" is not a port": "Number 2: \"x\" is not a port.",
	} {
		if got := Message("Image", message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

func TestGbps_SlowIsNotNone(t *testing.T) {
	t.Parallel()
	for g, want := range map[float64]string{
		0: "0.0", 0.04: "0.04", 0.123: "0.12", 0.95: "0.9", 1.25: "1.2", 97.06: "97.1",
	} {
		if got := Gbps(g); got != want {
			t.Errorf("%v: %s, want %s", g, got, want)
		}
	}
}

func TestWords_EachIsAnElement(t *testing.T) {
	t.Parallel()
	if got, want := words(`muster run -- 'a<b'`), "<span>muster</span> <span>run</span> <span>--</span> "+
		"<span>&#39;a&lt;b&#39;</span>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
