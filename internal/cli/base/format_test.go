package base

import (
	"testing"

	"github.com/musterhq/muster/internal/money"
)

func TestSpansAreReadable(t *testing.T) {
	t.Parallel()
	for s, want := range map[int64]string{
		0:      "0s",
		40:     "40s",
		60:     "1m",
		125:    "2m 5s",
		7200:   "2h",
		7500:   "2h 5m",
		7201:   "2h",
		604800: "7d",
		90000:  "1d 1h",
	} {
		if got := Seconds(s); got != want {
			t.Errorf("%d: %q, want %q", s, got, want)
		}
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	for amount, want := range map[money.Nano]string{
		0: "0.00", 610_138_666: "0.6101", 610_150_000: "0.6102", 2 * money.Unit: "2.00", -50_000: "-0.0001", 49_999: "0.00",
		100_000_000: "0.10",
	} {
		if got := Cost(amount); got != want {
			t.Errorf("%s: %s, want %s", amount, got, want)
		}
	}
	if got := Millis(162_801); got != "162.801 s" {
		t.Error(got)
	}
}
