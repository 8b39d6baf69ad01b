package market

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
)

// Query is a parsed offer query: terms that must all hold. The zero Query matches everything.
type Query struct {
	terms []term
}

// Bounds of a query.
const (
	maxQueryBytes = 4096
	maxTerms      = 64
	maxListItems  = 128
)

// op compares a field with a value.
type op string

const (
	opEq    op = "="
	opNe    op = "!="
	opLt    op = "<"
	opLe    op = "<="
	opGt    op = ">"
	opGe    op = ">="
	opIn    op = "in"
	opNotIn op = "notin"
)

// term is one `field op value`.
type term struct {
	field  *field
	op     op
	values []value // one, or a list's
}

// value is what a field is compared with; which member counts is the field's kind.
type value struct {
	raw   string // as written, for people
	text  string // folded
	words []string
	num   float64
}

// String is the query in its canonical form.
func (q Query) String() string {
	parts := make([]string, len(q.terms))
	for i, t := range q.terms {
		parts[i] = t.String()
	}
	return strings.Join(parts, " ")
}

func (t term) String() string {
	if t.op != opIn && t.op != opNotIn {
		return t.field.name + " " + string(t.op) + " " + quote(t.values[0].raw)
	}
	items := make([]string, len(t.values))
	for i, v := range t.values {
		items[i] = quote(v.raw)
	}
	return t.field.name + " " + string(t.op) + " [" + strings.Join(items, ",") + "]"
}

// quote puts quotes around a value that would not read back without.
func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\r\n,[]\"'\\=!<>") &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// ParseQuery reads terms `field op value` joined by spaces: ops = != < <= > >= in notin, lists [a,b], quotes for
// spaces. Its error is a *QueryError naming the position.
func ParseQuery(s string) (Query, error) {
	if len(s) > maxQueryBytes {
		return Query{}, &QueryError{1, fmt.Sprintf("a query has at most %d bytes", maxQueryBytes)}
	}
	if !utf8.ValidString(s) {
		return Query{}, &QueryError{1, "a query is UTF-8 text"}
	}
	l := &lexer{rest: s}
	var q Query
	for {
		t, more, err := parseTerm(l)
		if err != nil {
			return Query{}, err
		}
		if !more {
			return q, nil
		}
		if len(q.terms) == maxTerms {
			return Query{}, &QueryError{l.pos, fmt.Sprintf("a query has at most %d terms", maxTerms)}
		}
		q.terms = append(q.terms, t)
	}
}

func parseTerm(l *lexer) (t term, more bool, err error) {
	name, err := l.next("=!<>[],\"'")
	if err != nil {
		return t, false, err
	}
	switch name.kind {
	case tokenEnd:
		return t, false, nil
	case tokenWord:
	default:
		return t, false, &QueryError{name.pos, fmt.Sprintf("want a field such as gpu_model, not %s", name.describe())}
	}
	if t.field = fieldNamed(name.text); t.field == nil {
		return t, false, &QueryError{name.pos, fmt.Sprintf("there is no field %q; %s", text.Ellipsis(name.text, 40),
			suggest(name.text))}
	}
	if t.op, err = parseOp(l, t.field); err != nil {
		return t, false, err
	}
	if t.op == opIn || t.op == opNotIn {
		t.values, err = parseList(l, t.field)
		return t, true, err
	}
	tok, err := l.next("[],")
	if err != nil {
		return t, false, err
	}
	v, err := parseValue(t.field, tok)
	t.values = []value{v}
	return t, true, err
}

func parseOp(l *lexer, f *field) (op, error) {
	tok, err := l.next("=!<>[],\"'")
	if err != nil {
		return "", err
	}
	o := op(strings.ToLower(tok.text))
	switch {
	case tok.kind == tokenOp && slices.Contains([]op{opEq, opNe}, o), tok.kind == tokenWord &&
		slices.Contains([]op{opIn, opNotIn}, o):
		return o, nil
	case tok.kind == tokenOp && slices.Contains([]op{opLt, opLe, opGt, opGe}, o):
		if f.kind != kindNumber && f.kind != kindPrice && f.kind != kindVersion {
			return "", &QueryError{tok.pos, fmt.Sprintf("%s has no order: use =, !=, in or notin", f.name)}
		}
		return o, nil
	}
	return "", &QueryError{tok.pos, fmt.Sprintf("after %s want one of = != < <= > >= in notin, not %s", f.name,
		tok.describe())}
}

func parseList(l *lexer, f *field) ([]value, error) {
	tok, err := l.next("")
	if err != nil {
		return nil, err
	}
	if tok.kind != tokenOpen {
		return nil, &QueryError{tok.pos, "want a list such as [a,b]"}
	}
	var out []value
	for {
		if tok, err = l.next("[],"); err != nil {
			return nil, err
		}
		v, err := parseValue(f, tok)
		if err != nil {
			return nil, err
		}
		if len(out) == maxListItems {
			return nil, &QueryError{tok.pos, fmt.Sprintf("a list has at most %d items", maxListItems)}
		}
		out = append(out, v)
		if tok, err = l.next("[],"); err != nil {
			return nil, err
		}
		switch tok.kind {
		case tokenClose:
			return out, nil
		case tokenComma:
		default:
			return nil, &QueryError{tok.pos, fmt.Sprintf("in a list want , or ], not %s", tok.describe())}
		}
	}
}

func parseValue(f *field, tok token) (value, error) {
	if tok.kind != tokenWord && tok.kind != tokenQuoted {
		return value{}, &QueryError{tok.pos, fmt.Sprintf("want a value for %s, not %s", f.name, tok.describe())}
	}
	v := value{raw: tok.text, text: strings.ToLower(tok.text)}
	bad := func(want string) (value, error) {
		return value{}, &QueryError{tok.pos, fmt.Sprintf("%s wants %s, not %q", f.name, want, text.Ellipsis(tok.text, 40))}
	}
	switch f.kind {
	case kindModel:
		if v.words = words(tok.text); len(v.words) == 0 {
			return bad("the words of a model, such as H100")
		}
	case kindNumber:
		n, err := strconv.ParseFloat(tok.text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || strings.ContainsAny(v.text, "x_p") {
			return bad("a number")
		}
		v.num = n
	case kindPrice:
		n, err := money.ParseMicro(tok.text)
		if err != nil {
			return bad("a price such as 2.50")
		}
		v.num = float64(n) // exact: prices are far below 2^53
	case kindVersion:
		if !isVersion(tok.text) {
			return bad("a version such as 12.4")
		}
	case kindBool:
		switch v.text {
		case "true", "yes":
			v.num = 1
		case "false", "no":
			v.num = 0
		default:
			return bad("true or false")
		}
	case kindText, kindSet, kindIdentity:
	}
	return v, nil
}

// matches says whether an offer's facts and, for the fields that name one offer, its identity satisfy the term. What is
// not known satisfies nothing.
func (t *term) matches(f *facts, who *identity) bool {
	hit := false
	for i := range t.values {
		c, known := t.field.compare(f, who, &t.values[i])
		if !known {
			return false
		}
		hit = hit || holds(t.op, c)
	}
	if t.op == opNotIn {
		return !hit
	}
	return hit
}

// holds says whether the order c of field and value (<0, 0, >0) satisfies the operator; for in and notin, whether the
// item is met.
func holds(o op, c int) bool {
	switch o {
	case opNe:
		return c != 0
	case opLt:
		return c < 0
	case opLe:
		return c <= 0
	case opGt:
		return c > 0
	case opGe:
		return c >= 0
	default:
		return c == 0
	}
}

// words are the letters-and-digits runs of s, folded: what gpu_model matches by.
func words(s string) []string {
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
