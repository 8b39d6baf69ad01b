package query

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/text"
)

// Error says what is wrong with a query, and where.
type Error struct {
	Pos     int // 1-based, in characters
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("position %d: %s", e.Pos, e.Message) }

type tokenKind int

const (
	tokenEnd    tokenKind = iota
	tokenWord             // bare text: a field, an operator in letters, or a value
	tokenQuoted           // text in quotes: only ever a value
	tokenOp               // = != < <= > >=
	tokenOpen             // [
	tokenClose            // ]
	tokenComma
)

type token struct {
	kind tokenKind
	text string
	pos  int // 1-based, in characters
}

// describe names a token in an error.
func (t token) describe() string {
	switch t.kind {
	case tokenEnd:
		return "the end of the query"
	case tokenQuoted:
		return fmt.Sprintf("the text %q", text.Ellipsis(t.text, 40))
	default:
		return fmt.Sprintf("%q", text.Ellipsis(t.text, 40))
	}
}

// lexer cuts a query into tokens. What a bare word may hold depends on where it stands: a field ends at an operator, a
// value only at a space or, in a list, at a comma or bracket. So the parser says which one it wants.
type lexer struct {
	rest string
	pos  int // characters read so far
}

// advance skips n bytes.
func (l *lexer) advance(n int) string {
	s := l.rest[:n]
	l.pos += utf8.RuneCountInString(s)
	l.rest = l.rest[n:]
	return s
}

func (l *lexer) skipSpace() {
	l.advance(len(l.rest) - len(strings.TrimLeftFunc(l.rest, unicode.IsSpace)))
}

// next reads a token; a bare word ends before a space and before any of stops.
func (l *lexer) next(stops string) (token, error) {
	l.skipSpace()
	t := token{pos: l.pos + 1}
	if l.rest == "" {
		return t, nil
	}
	switch c := l.rest[0]; {
	case c == '"' || c == '\'':
		return l.quoted(c)
	case c == '[':
		t.kind, t.text = tokenOpen, l.advance(1)
	case c == ']':
		t.kind, t.text = tokenClose, l.advance(1)
	case c == ',':
		t.kind, t.text = tokenComma, l.advance(1)
	case strings.IndexByte("=!<>", c) >= 0:
		n := 1
		if len(l.rest) > 1 && l.rest[1] == '=' {
			n = 2
		}
		t.kind, t.text = tokenOp, l.advance(n)
	default:
		n := strings.IndexFunc(l.rest, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(stops, r) })
		if n < 0 {
			n = len(l.rest)
		}
		t.kind, t.text = tokenWord, l.advance(n)
	}
	return t, nil
}

// quoted reads text in quotes; a backslash takes the next character as it is.
func (l *lexer) quoted(quote byte) (token, error) {
	t := token{kind: tokenQuoted, pos: l.pos + 1}
	var b strings.Builder
	for i := 1; i < len(l.rest); i++ {
		switch c := l.rest[i]; {
		case c == quote:
			t.text = b.String()
			l.advance(i + 1)
			return t, nil
		case c == '\\' && i+1 < len(l.rest):
			i++
			b.WriteByte(l.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return t, &Error{t.pos, "this quote is never closed"}
}
