package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// nounRow is a row of the page's table of files: the file, what it has, and the text in the example.
	nounRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|[^|]+\\| (`.+`) \\|$")
	// ownFile is an item of the page's list of files that a noun has for itself.
	ownFile = regexp.MustCompile("(?m)^[0-9]\\. `([^`]+)`")
	// quotedCode is code that the page quotes: lines that are indented, with or without empty lines between.
	quotedCode = regexp.MustCompile(`(?m)(^(    |       )\S.*\n((    .*)?\n)*)`)
)

// TestAddingANoun compares docs/adding-a-noun.md with the code of its example: the files are there, the lines elsewhere
// are in those files and no others, there are at most six such files, and the quotedCode code is current.
func TestAddingANoun(t *testing.T) {
	t.Parallel()
	top := filepath.Join("..", "..", "..")
	page := read(t, filepath.Join(top, "docs", "adding-a-noun.md"))

	own := ownFile.FindAllStringSubmatch(page, -1)
	if len(own) < 5 {
		t.Fatalf("the page lists %d files of the noun's own: it is not read right", len(own))
	}
	for _, m := range own {
		if _, err := os.Stat(filepath.Join(top, m[1])); err != nil {
			t.Errorf("the page names %s, which does not exist", m[1])
		}
	}

	rows := nounRow.FindAllStringSubmatch(page, -1)
	if len(rows) < 3 || len(rows) > 6 {
		t.Errorf("a noun needs lines in %d files beside its own, more than 6 or none", len(rows))
	}
	code := map[string]string{}
	eachSource(t, func(file string) { code[file] = read(t, filepath.Join(top, file)) })
	for _, m := range rows {
		file, text := m[1], strings.Trim(m[2], "` ")
		if !strings.Contains(read(t, filepath.Join(top, file)), text) {
			t.Errorf("%s does not have %q", file, text)
		}
		for path, have := range code {
			if path != file && strings.HasSuffix(file, ".go") && strings.Contains(have, text) {
				t.Errorf("%s has %q, too, which the page says of %s alone", path, text, file)
			}
		}
	}

	blocks := quotedCode.FindAllString(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("the page quotes %d pieces of code, not 2: it is not read right", len(blocks))
	}
	for _, b := range blocks {
		indent := regexp.MustCompile(`^ +`).FindString(b)
		b = strings.TrimSpace(strings.ReplaceAll("\n"+b, "\n"+indent, "\n"))
		if !strings.Contains(code["internal/serve/api/buckets.go"]+code["internal/serve/api/routes.go"], b) {
			t.Errorf("this is not in the code any more:\n%s", b)
		}
	}
}
