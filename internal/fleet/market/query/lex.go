package query

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/text"
)

// Error is an error in a query, with its position.
type Error struct {
	Pos     int // 1-based, in characters
	Message string
	Fixed   string // the whole query as it was probably meant; "" = not known
}

func (e *Error) Error() string { return fmt.Sprintf("position %d: %s", e.Pos, e.Message) }

type tokenKind int

const (
	tokenEnd    tokenKind = iota
	tokenWord             // unquoted text: a field, an operator in letters, or a value
	tokenQuoted           // quoted text, always a value
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

// describe returns a description of the token for errors.
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

// lexer splits a query into tokens. The characters of an unquoted word depend on its position: a field ends before an
// operator; a value ends before a space or, in a list, before a comma or bracket. The parser passes these characters to
// next.
type lexer struct {
	rest string
	pos  int // number of characters read
}

// advance reads and returns n bytes.
func (l *lexer) advance(n int) string {
	s := l.rest[:n]
	l.pos += utf8.RuneCountInString(s)
	l.rest = l.rest[n:]
	return s
}

func (l *lexer) skipSpace() {
	l.advance(len(l.rest) - len(strings.TrimLeftFunc(l.rest, unicode.IsSpace)))
}

// next reads a token. An unquoted word ends before a space or any of stops.
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

// operatorNext reports whether the next token is an operator. It reads nothing.
func (l *lexer) operatorNext() bool {
	ahead := *l
	t, err := ahead.next("=!<>[],\"'")
	return err == nil && (t.kind == tokenOp || t.kind == tokenWord && slices.Contains([]string{"in", "notin"},
		strings.ToLower(t.text)))
}

// quoted reads quoted text. A backslash escapes the next character.
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
	return t, &Error{Pos: t.pos, Message: "this quote is never closed"}
}
