package query

import (
	"slices"
	"strings"
)

// Row provides the values of an offer's fields.
type Row interface {
	// Text returns the value of a field that is not numeric, or "" if it is unknown. A Set is lower-case words separated
	// by spaces.
	Text(f *Field) string
	// Number returns the value of a field of kind Number, Price or Bool; true is 1.
	Number(f *Field) (v float64, known bool)
	// Words returns the words of a Model, as split by the function Words.
	Words(f *Field) []string
}

// Matches reports whether the row satisfies the term. An unknown value satisfies no term.
func (t *Term) Matches(r Row) bool {
	hit := false
	for i := range t.values {
		c, known := t.Field.compare(r, &t.values[i])
		if !known {
			return false
		}
		hit = hit || holds(t.Op, c)
	}
	if t.Op == NotIn {
		return !hit
	}
	return hit
}

// holds reports whether c, the result of comparing field and value (<0, 0, >0), satisfies the operator. For In and
// NotIn it reports whether the field equals the item.
func holds(o Op, c int) bool {
	switch o {
	case Ne:
		return c != 0
	case Lt:
		return c < 0
	case Le:
		return c <= 0
	case Gt:
		return c > 0
	case Ge:
		return c >= 0
	default:
		return c == 0
	}
}

// Words returns the runs of letters and digits in s, in lower case. Fields of kind Model are compared by these words.
func Words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127)
	})
}

// hasWords reports whether have contains want as consecutive words.
func hasWords(have, want []string) bool {
	for i := 0; i+len(want) <= len(have); i++ {
		if slices.Equal(have[i:i+len(want)], want) {
			return true
		}
	}
	return false
}
