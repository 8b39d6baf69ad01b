// Package view is the design system: small templ components with the look and the class names of the stylesheet, and
// the formats of numbers, money and time. Components take plain values; they know nothing of the domain and query
// nothing.
package view

import (
	"fmt"
	"html"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/money"
)

const Minus = "\u2212"

// split formats an amount as cents, thousands grouped, and the digits after them up to decimals (2…9), which pages dim.
// What has more digits is rounded to nearest: 97.05674 with four decimals → "97.05", "67".
func split(n money.Nano, decimals int) (cents, rest string) {
	s := rounded(n, decimals).String()
	neg := strings.HasPrefix(s, "-")
	whole, frac, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	cents = Group(whole) + "." + frac[:2]
	if neg {
		cents = Minus + cents
	}
	return cents, frac[2:decimals]
}

// rounded rounds an amount to nearest with the number of decimals, halves away from zero.
func rounded(n money.Nano, decimals int) money.Nano {
	unit := money.Nano(1)
	for range 9 - decimals {
		unit *= 10
	}
	rest := n % unit
	n -= rest
	switch {
	case 2*rest >= unit && n <= math.MaxInt64-unit:
		n += unit
	case 2*rest <= -unit && unit > 1 && n >= math.MinInt64+unit:
		n -= unit
	}
	return n
}

func Group(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// Cents formats an amount where space is short: whole cents, rounded to nearest.
func Cents(n money.Nano) string {
	c, _ := split(n, 2)
	return c
}

// CentsDown formats what can be spent or paid out: whole cents, rounded down, so that it never promises too much.
func CentsDown(n money.Nano) string {
	const cent = money.Unit / 100
	if rest := n % cent; rest < 0 {
		n -= cent + rest
	} else {
		n -= rest
	}
	return Cents(n)
}

// CentsUp formats an upper bound: whole cents, rounded up.
func CentsUp(n money.Nano) string {
	const cent = money.Unit / 100
	if rest := n % cent; rest > 0 {
		n += cent - rest
	}
	return Cents(n)
}

// PerHour formats a price per hour in cents.
func PerHour(m money.Micro) string { return Cents(m.Nano()) }

// Price formats an exact price with the decimals it needs, at least two: "2.40", "0.345".
func Price(m money.Micro) string {
	s := m.String()
	whole, frac, _ := strings.Cut(s, ".")
	for len(frac) > 2 && frac[len(frac)-1] == '0' {
		frac = frac[:len(frac)-1]
	}
	return whole + "." + frac
}

// Ago formats how long ago something was, in whole seconds below a minute.
func Ago(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s ago", int(max(d, 0).Seconds()))
	}
	return Dur(d) + " ago"
}

// PerSecond formats a price per hour as one per second with six decimals, rounded to nearest: for display only.
func PerSecond(m money.Micro) string {
	nano := (int64(m.Nano()) + 1800) / 3600
	micro := (nano + 500) / 1000
	return money.Micro(micro).String()
}

// Dur formats a duration: "2.3 s", "41 min 06 s", "20 h 05 min", "33 d 15 h".
func Dur(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", math.Floor(d.Seconds()*10)/10)
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// Clock formats a time in UTC, to the second; with the date unless it is the day of now.
func Clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2 Jan 15:04:05")
}

// Bytes formats a size with a decimal unit: "4.1 GB".
func Bytes(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	v, u := float64(n), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/1000, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

// words returns the HTML of a command with an element for each word, so that lines end between words.
func words(command string) string {
	all := strings.Split(command, " ")
	for i, w := range all {
		all[i] = "<span>" + html.EscapeString(w) + "</span>"
	}
	return strings.Join(all, " ")
}

// Title begins a word with an upper-case letter: "host" → "Host".
func Title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Gbps formats a bandwidth: one decimal, and two significant digits of what is slower than 1 Gbit/s, so that a slow
// network is not shown as none.
func Gbps(g float64) string {
	if g > 0 && g < 0.95 {
		return strconv.FormatFloat(g, 'g', 2, 64)
	}
	return fmt.Sprintf("%.1f", g)
}

// ModelName returns a GPU's name without the maker: "NVIDIA H100 80GB HBM3" → "H100 80GB HBM3".
func ModelName(model string) string {
	return strings.TrimPrefix(strings.TrimPrefix(model, "NVIDIA "), "GeForce ")
}

// ShortID shortens an id to its prefix and last six characters.
func ShortID(s string) string {
	if len(s) < 12 {
		return s
	}
	for i := range s {
		if s[i] == '_' {
			return s[:i+1] + s[len(s)-6:]
		}
	}
	return s
}

// Nano formats an exact amount of any size, in nano-units.
func Nano(n *big.Int) string {
	whole, rest := new(big.Int).QuoRem(new(big.Int).Abs(n), big.NewInt(int64(money.Unit)), new(big.Int))
	s := fmt.Sprintf("%s.%09d", Group(whole.String()), rest)
	if n.Sign() < 0 {
		return Minus + s
	}
	return s
}

// NanoCents formats an amount of any size, in nano-units, with whole cents, rounded to nearest.
func NanoCents(n *big.Int) string {
	cent := big.NewInt(int64(money.Unit / 100))
	half := new(big.Int).Rsh(cent, 1)
	whole := new(big.Int).Add(new(big.Int).Abs(n), half)
	whole.Sub(whole, new(big.Int).Rem(whole, cent))
	if n.Sign() < 0 {
		whole.Neg(whole)
	}
	s := Nano(whole)
	return s[:len(s)-7]
}

// GiB formats a size of memory in MiB, as GPUs and kernels count it, in whole GiB, rounded to nearest.
func GiB(mib int64) string { return fmt.Sprintf("%d GiB", (mib+512)>>10) }

// Plural returns a count with its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Sentence turns a fault's message into a sentence: messages begin in lower case because elsewhere they follow a colon.
func Sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	s = string(unicode.ToUpper(first)) + s[size:]
	if !strings.ContainsRune(".?!", rune(s[len(s)-1])) {
		s += "."
	}
	return s
}

// Seconds formats a metered time in seconds with milliseconds, thousands grouped.
func Seconds(d time.Duration) string {
	ms := d.Milliseconds()
	return Group(Itoa(int(ms/1000))) + "." + Itoa(1000 + int(ms%1000))[1:]
}
