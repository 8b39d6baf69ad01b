package view

import (
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
	if got := Metered(time.Hour + 41*time.Minute + 6*time.Second); got != "1 h 41 min 06.0 s" {
		t.Error(got)
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
