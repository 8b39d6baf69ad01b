package docs

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hit is a part of a document that a search found.
type Hit struct{ Title, Page, URL, Excerpt string }

// maxHits is how many results a search shows.
const maxHits = 30

// weights of where a word stands. A part whose title has all words comes first.
const inAllOfTitle, inTitle, inPageTitle, inText = 40, 10, 5, 1

// design is the section of the pages for those who develop Muster. It has a search apart: what renters and operators
// look for is not among decisions and measurements.
const design = "Design"

// Results are what a query finds in one of the two searches, and how much it finds in the other.
type Results struct {
	Query  string
	Design bool // whether the hits are of the design's pages
	Hits   []Hit
	Other  int // number of hits in the other search
}

func (l *library) results(query string, inDesign bool) Results {
	return Results{query, inDesign, l.search(query, inDesign), len(l.search(query, !inDesign))}
}

// search returns the parts of documents that contain every word of the query, the best first: of the design's pages, or
// of all others.
func (l *library) search(query string, inDesign bool) []Hit {
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 {
		return nil
	}
	type scored struct {
		hit   Hit
		score int
	}
	var found []scored
	for _, d := range l.all {
		if (d.Section == design) != inDesign {
			continue
		}
		for i := range d.parts {
			p := &d.parts[i]
			if n := score(d.Title, p, words, i == 0); n > 0 {
				found = append(found, scored{hit(d, p, words[0]), n})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	var out []Hit
	for _, f := range found[:min(len(found), maxHits)] {
		out = append(out, f.hit)
	}
	return out
}

// score is 0 unless the part contains all words, in its text or a title above it.
func score(page string, p *part, words []string, first bool) int {
	page, title, text := strings.ToLower(page), strings.ToLower(p.title), strings.ToLower(p.text)
	sum, titled := 0, 0
	for _, w := range words {
		n := min(count(text, w), 5) * inText
		if count(title, w) > 0 {
			n += inTitle
			titled++
		}
		if (first || n > 0) && count(page, w) > 0 {
			n += inPageTitle
		}
		if n == 0 {
			return 0
		}
		sum += n
	}
	if titled == len(words) {
		sum += inAllOfTitle
	}
	return sum
}

// count returns how often a word begins with w in the text.
func count(text, w string) int {
	n := 0
	for from := 0; ; {
		i := strings.Index(text[from:], w)
		if i < 0 {
			return n
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		if !unicode.IsLetter(before) && !unicode.IsDigit(before) {
			n++
		}
		from = i + len(w)
	}
}

// around is how many bytes of text an excerpt shows before its word.
const around = 60

func hit(d *Document, p *part, word string) Hit {
	h := Hit{Title: p.title, Page: d.Title, URL: d.URL()}
	if p.id != "" {
		h.URL += "#" + p.id
	}
	start := max(strings.Index(strings.ToLower(p.text), word)-around, 0)
	text := p.text
	if start > 0 && start < len(text) {
		text = strings.ToValidUTF8(text[start:], "")
		if i := strings.IndexByte(text, ' '); i >= 0 && i < around {
			text = "… " + text[i+1:]
		}
	}
	h.Excerpt = clip(strings.TrimSpace(text), 200)
	return h
}

// searched names what a search looks through.
func searched(inTheDesign bool) string {
	if inTheDesign {
		return "design and decisions"
	}
	return "guides and reference"
}

// searchURL is the address of a search.
func searchURL(query string, inTheDesign bool) string {
	q := url.Values{"q": {query}}
	if inTheDesign {
		q.Set("in", inDesign)
	}
	return base + "/search?" + q.Encode()
}
