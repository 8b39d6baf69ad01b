// Package text makes strings from outside safe to store and to show.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clip returns s as valid UTF-8 without NUL bytes, which PostgreSQL stores in no text column, cut to at most n bytes at
// the boundary of a character.
func Clip(s string, n int) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Ellipsis is Clip with "…" appended to what was cut. The mark is not counted.
func Ellipsis(s string, n int) string {
	c := Clip(s, n)
	if len(s) > n {
		c += "…"
	}
	return c
}

// OneLine replaces control characters, and characters that change the direction of text, by spaces, so that s can be
// printed in a line of a terminal: a carriage return, an escape sequence or an override then shows nothing that is not
// there.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !Printable(r) {
			return ' '
		}
		return r
	}, s)
}

// Printable reports whether r is neither a control character nor one that changes the direction of text.
func Printable(r rune) bool {
	return !unicode.IsControl(r) && !(r >= '\u202A' && r <= '\u202E') && !(r >= '\u2066' && r <= '\u2069')
}
