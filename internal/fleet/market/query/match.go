package query

import (
	"slices"
	"strings"
)

// Row has the values of an offer's fields.
type Row interface {
	// Text is the value of a field that is not a number; "" means that it is not known. The words of a Set are in lower
	// case and joined by spaces.
	Text(f *Field) string
	// Number is the value of a field of the kind Number, Price or Bool: 1 is true.
	Number(f *Field) (v float64, known bool)
	// Words are the words of a Model, as the function Words splits them.
	Words(f *Field) []string
}

// Matches reports whether the row satisfies the term. A value that is not known satisfies no term.
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

// holds reports whether the order c of field and value (<0, 0, >0) satisfies the operator; for In and NotIn it reports
// whether the field equals the item.
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

// Words are the runs of letters and digits of s in lower case: what a Model is compared by.
func Words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127)
	})
}

// hasWords reports whether want appears in have as a run of whole words.
func hasWords(have, want []string) bool {
	for i := 0; i+len(want) <= len(have); i++ {
		if slices.Equal(have[i:i+len(want)], want) {
			return true
		}
	}
	return false
}
