// Package query implements the language in which renters search offers and specify GPUs for a cluster. A query is a
// list of terms that must all hold, such as gpu_model=H100 vram_gb>=80, or just h100.
//
// The package defines the fields of an offer and how their values compare. A Row provides the values of one offer.
package query

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
)

// Query is a parsed query: terms that must all hold. The zero Query has no terms and matches every offer.
type Query struct {
	terms []Term
}

// Bounds of a query.
const (
	maxBytes     = 4096
	maxTerms     = 64
	maxListItems = 128
)

// Op is an operator: it compares a field with a value, or with each value of a list.
type Op string

// The operators of the language.
const (
	Eq    Op = "="
	Ne    Op = "!="
	Lt    Op = "<"
	Le    Op = "<="
	Gt    Op = ">"
	Ge    Op = ">="
	In    Op = "in"
	NotIn Op = "notin"
)

// Term is one `field op value`, or a bare word.
type Term struct {
	Field  *Field
	Op     Op
	values []value // one, or several for a list
}

// value is the value in a term. The kind of the field determines which members are used.
type value struct {
	raw   string // as written, for display
	text  string // folded
	words []string
	num   float64
}

// Terms returns the terms in the order in which they were written. The caller must not modify them.
func (q Query) Terms() []Term { return q.terms }

// String returns the query in its canonical form.
func (q Query) String() string {
	parts := make([]string, len(q.terms))
	for i, t := range q.terms {
		parts[i] = t.String()
	}
	return strings.Join(parts, " ")
}

func (t Term) String() string {
	if t.Field == bare {
		if raw := t.values[0].raw; FieldNamed(raw) == nil && !isKeyword(raw) {
			return quote(raw)
		}
		return `"` + t.values[0].raw + `"` // unquoted, it would begin another term
	}
	if t.Op != In && t.Op != NotIn {
		return t.Field.Name + " " + string(t.Op) + " " + quote(t.values[0].raw)
	}
	items := make([]string, len(t.values))
	for i, v := range t.values {
		items[i] = quote(v.raw)
	}
	return t.Field.Name + " " + string(t.Op) + " [" + strings.Join(items, ",") + "]"
}

// quote quotes a value if Parse could not read it back unquoted.
func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\r\n,[]\"'\\=!<>") &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// isKeyword reports whether an unquoted word has a meaning of its own, or is mistaken for one.
func isKeyword(s string) bool {
	return slices.Contains([]string{"in", "notin", "and", "or", "not"}, strings.ToLower(s))
}

// Parse parses a query: terms `field op value` and bare words, separated by spaces. The operators are = != < <= > >= in
// notin; a list is written [a,b]; values with spaces are quoted. The error is a *Error with the position.
func Parse(s string) (Query, error) {
	if len(s) > maxBytes {
		return Query{}, &Error{Pos: 1, Message: fmt.Sprintf("a query has at most %d bytes", maxBytes)}
	}
	if !utf8.ValidString(s) {
		return Query{}, &Error{Pos: 1, Message: "a query is UTF-8 text"}
	}
	l := &lexer{rest: s}
	var q Query
	for {
		t, more, err := parseTerm(l)
		var unknown *unknownField
		if errors.As(err, &unknown) {
			return Query{}, unknown.in(s)
		}
		if err != nil {
			return Query{}, err
		}
		if !more {
			return q, nil
		}
		if len(q.terms) == maxTerms {
			return Query{}, &Error{Pos: l.pos, Message: fmt.Sprintf("a query has at most %d terms", maxTerms)}
		}
		q.terms = append(q.terms, t)
	}
}

func parseTerm(l *lexer) (t Term, more bool, err error) {
	name, err := l.next("=!<>[],\"'")
	if err != nil {
		return t, false, err
	}
	switch name.kind {
	case tokenEnd:
		return t, false, nil
	case tokenWord:
		if FieldNamed(name.text) == nil && !isKeyword(name.text) && !l.operatorNext() {
			t, err = bareTerm(name)
			return t, true, err
		}
	case tokenQuoted:
		if !l.operatorNext() {
			t, err = bareTerm(name)
			return t, true, err
		}
		return t, false, &Error{Pos: name.pos,
			Message: fmt.Sprintf("want a field without quotes, not %s", name.describe())}
	default:
		return t, false, &Error{Pos: name.pos,
			Message: fmt.Sprintf("want a field such as gpu_model, not %s", name.describe())}
	}
	if t.Field = FieldNamed(name.text); t.Field == nil {
		return t, false, &unknownField{name}
	}
	if t.Op, err = parseOp(l, t.Field); err != nil {
		return t, false, err
	}
	if t.Op == In || t.Op == NotIn {
		t.values, err = parseList(l, t.Field)
		return t, true, err
	}
	tok, err := l.next("[],")
	if err != nil {
		return t, false, err
	}
	v, err := parseValue(t.Field, tok)
	t.values = []value{v}
	return t, true, err
}

// bareTerm returns the term of a word without a field.
func bareTerm(word token) (Term, error) {
	words := Words(word.text)
	if len(words) == 0 {
		return Term{}, &Error{Pos: word.pos, Message: fmt.Sprintf(
			"want a field such as gpu_model or a word such as H100, not %s", word.describe())}
	}
	v := value{raw: word.text, text: strings.ToLower(word.text), words: words}
	return Term{Field: bare, Op: Eq, values: []value{v}}, nil
}

func parseOp(l *lexer, f *Field) (Op, error) {
	tok, err := l.next("=!<>[],\"'")
	if err != nil {
		return "", err
	}
	o := Op(strings.ToLower(tok.text))
	switch {
	case tok.kind == tokenOp && slices.Contains([]Op{Eq, Ne}, o), tok.kind == tokenWord &&
		slices.Contains([]Op{In, NotIn}, o):
		return o, nil
	case tok.kind == tokenOp && slices.Contains([]Op{Lt, Le, Gt, Ge}, o):
		if f.Kind != Number && f.Kind != Price && f.Kind != Version {
			return "", &Error{Pos: tok.pos, Message: fmt.Sprintf("%s has no order: use =, !=, in or notin", f.Name)}
		}
		return o, nil
	}
	return "", &Error{Pos: tok.pos, Message: fmt.Sprintf("after %s want one of = != < <= > >= in notin, not %s", f.Name,
		tok.describe())}
}

func parseList(l *lexer, f *Field) ([]value, error) {
	tok, err := l.next("")
	if err != nil {
		return nil, err
	}
	if tok.kind != tokenOpen {
		return nil, &Error{Pos: tok.pos, Message: "want a list such as [a,b]"}
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
			return nil, &Error{Pos: tok.pos, Message: fmt.Sprintf("a list has at most %d items", maxListItems)}
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
			return nil, &Error{Pos: tok.pos, Message: fmt.Sprintf("in a list want , or ], not %s", tok.describe())}
		}
	}
}

func parseValue(f *Field, tok token) (value, error) {
	if tok.kind != tokenWord && tok.kind != tokenQuoted {
		return value{}, &Error{Pos: tok.pos,
			Message: fmt.Sprintf("want a value for %s, not %s", f.Name, tok.describe())}
	}
	v := value{raw: tok.text, text: strings.ToLower(tok.text)}
	bad := func(want string) (value, error) {
		return value{}, &Error{Pos: tok.pos,
			Message: fmt.Sprintf("%s wants %s, not %q", f.Name, want, text.Ellipsis(tok.text, 40))}
	}
	switch f.Kind {
	case Model:
		if v.words = Words(tok.text); len(v.words) == 0 {
			return bad("the words of a model, such as H100")
		}
	case Number:
		n, err := strconv.ParseFloat(tok.text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || strings.ContainsAny(v.text, "x_p") {
			return bad("a number")
		}
		v.num = n
	case Price:
		n, err := money.ParseMicro(tok.text)
		if err != nil {
			return bad("a price such as 2.50")
		}
		v.num = float64(n) // exact: prices are far below 2^53
	case Version:
		if !isVersion(tok.text) {
			return bad("a version such as 12.4")
		}
	case Bool:
		switch v.text {
		case "true", "yes":
			v.num = 1
		case "false", "no":
			v.num = 0
		default:
			return bad("true or false")
		}
	case Text, Set, Identity:
	}
	return v, nil
}
