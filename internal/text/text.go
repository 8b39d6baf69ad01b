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

// Nearest returns the one of words that was probably meant by a misspelt word, or "" if none is near: at most two
// letters differ, and no more than a third of the word's. Case does not matter.
func Nearest(word string, words []string) string {
	best, least := "", min(2, utf8.RuneCountInString(word)/3)
	for _, w := range words {
		if d := editDistance(strings.ToLower(word), strings.ToLower(w)); d <= least && (best == "" || d < least) {
			best, least = w, d
		}
	}
	return best
}

// editDistance returns how many letters have to be inserted, deleted, replaced or swapped with the next one to turn a
// into b (the optimal string alignment distance).
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row := make([]int, len(y)+1)
		row[0] = i + 1
		for j := range y {
			row[j+1] = min(row[j], last[j+1]) + 1
			if x[i] == y[j] {
				row[j+1] = min(row[j+1], last[j])
			} else {
				row[j+1] = min(row[j+1], last[j]+1)
			}
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}
