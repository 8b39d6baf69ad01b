// Package money is integer money.
//
// Amounts are int64 nano-units of the platform's currency (1 unit = 1e9 nano). Prices are int64 micro-units per
// hour. Nothing here is ever a float. Text is a plain decimal, "0.200000".
package money

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// Nano is an amount in nano-units. Range ±9.2e9 units.
type Nano int64

// Micro is a price in micro-units, per hour unless stated otherwise.
type Micro int64

const (
	Unit         Nano = 1_000_000_000
	Cent         Nano = Unit / 100
	nanoPerMicro      = 1000
	// NumeratorPerNano divides a metering numerator (micro-units per hour × milliseconds) into nano-units:
	// µ·ms/h ÷ 3.6e6 ms/h × 1000 nano/µ.
	NumeratorPerNano = 3600
)

var (
	errSyntax   = errors.New("want a decimal number such as 12.50")
	errTooLarge = errors.New("number is too large")
)

// ParseNano reads a decimal amount, up to nine decimals, optional leading minus. No exponent, no separators.
func ParseNano(s string) (Nano, error) {
	v, err := parse(s, 9)
	return Nano(v), err
}

// ParseMicro reads a decimal price, up to six decimals.
func ParseMicro(s string) (Micro, error) {
	v, err := parse(s, 6)
	return Micro(v), err
}

func parse(s string, decimals int) (int64, error) {
	neg := strings.HasPrefix(s, "-")
	whole, frac, dot := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	if whole == "" || (dot && frac == "") || !digits(whole) || !digits(frac) {
		return 0, errSyntax
	}
	if len(whole) > 12 {
		return 0, errTooLarge
	}
	if len(frac) > decimals {
		if strings.Trim(frac[decimals:], "0") != "" {
			return 0, fmt.Errorf("at most %d decimals", decimals)
		}
		frac = frac[:decimals]
	}
	frac += strings.Repeat("0", decimals-len(frac))
	v, err := strconv.ParseInt(whole+frac, 10, 64)
	if err != nil {
		return 0, errTooLarge
	}
	if neg {
		v = -v
	}
	return v, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// String is the exact amount with nine decimals.
func (n Nano) String() string { return format(int64(n), 9) }

// String is the exact price with six decimals.
func (m Micro) String() string { return format(int64(m), 6) }

// Plain is the exact amount for a sentence: the decimals it needs, two at least ("25.00", "0.005").
func (n Nano) Plain() string { return plain(n.String()) }

// Plain is the exact price for a sentence: the decimals it needs, two at least.
func (m Micro) Plain() string { return plain(m.String()) }

// plain cuts zeros off the end of a number with decimals, down to cents.
func plain(s string) string {
	cents := strings.IndexByte(s, '.') + 3
	return s[:cents] + strings.TrimRight(s[cents:], "0")
}

func format(v int64, decimals int) string {
	sign := ""
	u := uint64(v)
	if v < 0 {
		sign, u = "-", -u
	}
	p := uint64(math.Pow10(decimals))
	return fmt.Sprintf("%s%d.%0*d", sign, u/p, decimals, u%p)
}

// Nano is the price as an amount. It saturates nothing: prices are validated far below the range.
func (m Micro) Nano() Nano { return Nano(m) * nanoPerMicro }

func (n Nano) MarshalText() ([]byte, error)  { return []byte(n.String()), nil }
func (m Micro) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (n *Nano) UnmarshalText(b []byte) (err error)  { *n, err = ParseNano(string(b)); return }
func (m *Micro) UnmarshalText(b []byte) (err error) { *m, err = ParseMicro(string(b)); return }

// CostOf is floor(rate × ms / 3600) nano-units: what a lease at rate costs for ms milliseconds. Exact in 128 bits.
// It panics when the result exceeds the range of Nano, which no validated price and duration reaches.
func CostOf(rate Micro, ms int64) Nano { return cost(rate, ms, 0) }

// CostCeil is CostOf rounded up: what must be held so that no rounding can overshoot.
func CostCeil(rate Micro, ms int64) Nano { return cost(rate, ms, NumeratorPerNano-1) }

func cost(rate Micro, ms int64, add uint64) Nano {
	if rate < 0 || ms < 0 {
		panic("money: negative rate or time")
	}
	hi, lo := bits.Mul64(uint64(rate), uint64(ms))
	lo, c := bits.Add64(lo, add, 0)
	q, _ := bits.Div64(hi+c, lo, NumeratorPerNano)
	if q > math.MaxInt64 {
		panic("money: cost out of range")
	}
	return Nano(q)
}

// Posted is floor(numerator / 3600): the cumulative charge of an exact numerator in µ·ms/h.
func Posted(numerator *big.Int) Nano {
	q := new(big.Int).Quo(numerator, big.NewInt(NumeratorPerNano))
	if !q.IsInt64() {
		panic("money: posted out of range")
	}
	return Nano(q.Int64())
}

// Share is floor(n × ppm / 1e6) in 128 bits. n ≥ 0, 0 ≤ ppm ≤ 1e6.
func Share(n Nano, ppm int64) Nano {
	if n < 0 || ppm < 0 || ppm > 1_000_000 {
		panic("money: share out of range")
	}
	hi, lo := bits.Mul64(uint64(n), uint64(ppm))
	q, _ := bits.Div64(hi, lo, 1_000_000)
	return Nano(q)
}

// MillisOf is how many whole milliseconds of rate the amount covers: floor(n × 3600 / rate). rate > 0.
func MillisOf(n Nano, rate Micro) (ms int64) {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), NumeratorPerNano)
	if hi >= uint64(rate) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(rate))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}
