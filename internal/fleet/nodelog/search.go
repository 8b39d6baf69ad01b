package nodelog

import (
	"regexp"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
)

// Search finds lines that contain a text, in upper or lower case. Its zero value finds every line.
type Search struct{ text *regexp.Regexp }

// maxSearch is the longest text to search for, in bytes.
const maxSearch = 200

// NewSearch returns a search for a text; "" finds every line. Fault: Invalid, about the field with that name.
func NewSearch(field, text string) (Search, error) {
	if text = strings.TrimSpace(text); text == "" {
		return Search{}, nil
	}
	if len(text) > maxSearch {
		return Search{}, fault.InvalidField(field, "is longer than %d bytes", maxSearch)
	}
	re, err := regexp.Compile("(?i)" + regexp.QuoteMeta(text))
	if err != nil {
		return Search{}, fault.InvalidField(field, "has to be text")
	}
	return Search{re}, nil
}

// Any reports whether the search finds every line.
func (s Search) Any() bool { return s.text == nil }

// Finds reports whether a line contains the text.
func (s Search) Finds(line string) bool { return s.text == nil || s.text.MatchString(line) }

// Split divides a line: every second part is the text that was searched for.
func (s Search) Split(line string) (parts []string) {
	if s.text == nil {
		return []string{line}
	}
	at := 0
	for _, hit := range s.text.FindAllStringIndex(line, -1) {
		parts = append(parts, line[at:hit[0]], line[hit[0]:hit[1]])
		at = hit[1]
	}
	return append(parts, line[at:])
}

// Last returns the lines that the search finds, of each rank the last ones; tail < 0: all.
func (s Search) Last(lines []Line, tail int) []Line {
	lines = slices.DeleteFunc(lines, func(l Line) bool { return !s.Finds(l.Line) })
	if tail < 0 {
		return lines
	}
	over := map[int]int{} // lines of each rank that are too many
	for _, l := range lines {
		over[l.Rank]++
	}
	return slices.DeleteFunc(lines, func(l Line) bool {
		over[l.Rank]--
		return over[l.Rank] >= tail
	})
}
