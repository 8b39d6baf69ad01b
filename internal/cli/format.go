package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/money"
)

// decimal is an amount without the zeros nobody reads: at least two decimals.
func decimal(s string) string {
	whole, frac, _ := strings.Cut(s, ".")
	frac = strings.TrimRight(frac, "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return whole + "." + frac
}

func nano(n money.Nano) string { return decimal(n.String()) }

func micro(m money.Micro) string { return decimal(m.String()) }

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func whenPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return when(*t)
}

// seconds writes a span in its two greatest units: "7d", "2h 5m", "40s".
func seconds(s int64) string {
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

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func floatOr(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f", *f)
}

// counted is n with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
