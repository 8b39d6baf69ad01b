package base

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Gigabytes adds a flag whose value is a number of whole gigabytes of 10⁹ bytes, see ParseGB.
func Gigabytes(fs *pflag.FlagSet, to *int64, name string, value int64, usage string) {
	*to = value
	fs.Var((*gigabytes)(to), name, usage)
}

// gigabytes is the value of such a flag.
type gigabytes int64

func (g *gigabytes) String() string { return strconv.FormatInt(int64(*g), 10) }

// Type is how the help shows the value.
func (g *gigabytes) Type() string { return "GB" }

func (g *gigabytes) Set(s string) error {
	n, err := ParseGB(s)
	if err == nil {
		*g = gigabytes(n)
	}
	return err
}

// ParseGB parses a size in whole gigabytes of 10⁹ bytes, such as "100", "100GB" or "2TB".
func ParseGB(s string) (int64, error) {
	number, unit := s, int64(1)
	for suffix, gb := range map[string]int64{"GB": 1, "TB": 1000} {
		if cut := len(s) - len(suffix); cut > 0 && strings.EqualFold(s[cut:], suffix) {
			number, unit = strings.TrimRight(s[:cut], " "), gb
		}
	}
	const most = 1 << 40 // more than any disk has; unit times this does not overflow
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < -most || n > most {
		return 0, fmt.Errorf("want whole gigabytes, such as 100, 100GB or 2TB, not %q", s)
	}
	return n * unit, nil
}

// Bytes formats a number of bytes in the largest unit of which there is at least one: "512 B", "1.5 MB".
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
