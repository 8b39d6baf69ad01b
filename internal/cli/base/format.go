package base

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/money"
)

// decimal removes trailing zeros from an amount, but keeps at least two decimals.
func decimal(s string) string {
	whole, frac, _ := strings.Cut(s, ".")
	frac = strings.TrimRight(frac, "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return whole + "." + frac
}

// Nano formats an amount as a decimal with at least two decimals.
func Nano(n money.Nano) string { return decimal(n.String()) }

// Cost formats an amount that grows with time: rounded to four decimals, of which two are always shown. The exact
// amount is in -o json.
func Cost(n money.Nano) string {
	const step = money.Unit / 10_000
	half := money.Nano(step / 2)
	if n < 0 {
		half = -half
	}
	return Nano((n + half) / step * step)
}

// Micro formats a price as a decimal with at least two decimals.
func Micro(m money.Micro) string { return decimal(m.String()) }

// When formats a time in UTC to the second.
func When(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// WhenPtr is When, or "" for nil.
func WhenPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return When(*t)
}

// Seconds formats a duration, given in seconds, in its two greatest units: "7d", "2h 5m", "40s".
func Seconds(s int64) string {
	units := []struct {
		of   int64
		name string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}}
	for i, u := range units {
		if s < u.of && u.of > 1 {
			continue
		}
		text := fmt.Sprintf("%d%s", s/u.of, u.name)
		if i+1 < len(units) {
			if rest := s % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf(" %d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return ""
}

// Millis formats a duration, given in milliseconds, in seconds with three decimals: "162.801 s".
func Millis(ms int64) string { return fmt.Sprintf("%d.%03d s", ms/1000, ms%1000) }

// OrDash returns s, or a dash if s is empty.
func OrDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// FloatOr formats a number without decimals, or a dash for nil.
func FloatOr(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f", *f)
}

// Counted formats n with its noun in singular or plural: "1 host", "2 hosts".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
