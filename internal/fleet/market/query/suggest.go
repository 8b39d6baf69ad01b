package query

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/text"
)

// unknownField is the error of a term whose field does not exist.
type unknownField struct{ name token }

func (e *unknownField) Error() string {
	return fmt.Sprintf("there is no field %q; %s", text.Ellipsis(e.name.text, 40), Suggest(e.name.text))
}

// in returns the error in a query. If a field is similar, or the word only joins terms, Fixed is the query with the
// mistake corrected.
func (e *unknownField) in(query string) *Error {
	out := &Error{Pos: e.name.pos, Message: e.Error()}
	like := NearestField(e.name.text)
	if like == "" && !strings.EqualFold(e.name.text, "and") {
		return out
	}
	all := []rune(query)
	before, after := all[:e.name.pos-1], all[e.name.pos-1+len([]rune(e.name.text)):]
	if like == "" {
		out.Fixed = strings.TrimSpace(string(before)) + string(after)
	} else {
		out.Fixed = string(before) + like + string(after)
	}
	return out
}

// IsBare reports whether the term is a word without a field.
func (t Term) IsBare() bool { return t.Field == bare }

// Correct returns the term with its value replaced by the nearest of the values that exist. It returns false if none is
// near, and for terms that are not a bare word or an equality of text.
func (t Term) Correct(exist []string) (Term, bool) {
	if t.Op != Eq || t.Field.IsNumber() || t.Field.Kind == Version {
		return t, false
	}
	raw := t.values[0].raw
	like := nearestValue(raw, exist)
	if like == "" {
		return t, false
	}
	t.values = []value{{raw: like, text: strings.ToLower(like), words: Words(like)}}
	return t, true
}

// nearestValue returns the value that is spelt like raw: with a space or a hyphen too few, with letters that look like
// digits, or with a mistake in a few letters.
func nearestValue(raw string, exist []string) string {
	i := slices.IndexFunc(exist, func(v string) bool { return shape(v) == shape(raw) })
	if i >= 0 {
		return exist[i]
	}
	return text.Nearest(raw, exist)
}

// shape returns a text without what is easily mistyped: h1oo and H100 have one shape, as do rtx4090 and RTX 4090.
func shape(s string) string { return alike.Replace(strings.ToLower(s)) }

var alike = strings.NewReplacer("o", "0", "l", "1", "i", "1", "s", "5", " ", "", "-", "", "_", "")
