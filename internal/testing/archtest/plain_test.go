package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// notPlainRooms are the rooms that TestPlainWords does not check, each with the rooms below it, and why.
var notPlainRooms = map[string]string{
	"internal/db/dbq": "generated; TestPlainQueries checks the queries",
}

// notPlain are words and phrases that a reader has to translate: archaic ones, and verbs of speech where no person
// speaks.
var notPlain = regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|anew|till|tells?|told|hears?|heard|the books|mended|` +
	`purse|for ever)\b`)

// notProse is the account "nobody", and that word in quotes.
var notProse = regexp.MustCompile(`^nobody$|"nobody"|\bnobody:x:|:nobody:|\buser nobody\b`)

// TestPlainWords checks the comments and string constants of all rooms but notPlainRooms.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	checked, rooms := 0, map[string]bool{}
	eachSource(t, func(file string) {
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			if rooms[dir] = true; notPlainRooms[dir] != "" {
				return
			}
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join("..", "..", "..", file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		check := func(at token.Pos, text string) {
			checked++
			if w := notPlain.FindString(notProse.ReplaceAllString(text, "")); w != "" {
				t.Errorf("%s: %q is not plain English: %s", fset.Position(at), w, text)
			}
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				check(c.Pos(), c.Text)
			}
		}
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				n.Tag = nil // the wire's names stay as they are
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
					check(n.Pos(), s)
				}
			}
			return true
		})
	})
	if checked < 40_000 {
		t.Fatalf("only %d texts seen: the walk is broken", checked)
	}
	for room := range notPlainRooms {
		if !rooms[room] {
			t.Errorf("there is no room %s", room)
		}
	}
}

// TestPlainQueries checks the comments of the queries.
func TestPlainQueries(t *testing.T) {
	t.Parallel()
	comments := 0
	for _, file := range glob(t, "../../db/queries/*.sql") {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(raw), "\n") {
			_, comment, ok := strings.Cut(line, "--")
			if !ok {
				continue
			}
			comments++
			if w := notPlain.FindString(comment); w != "" {
				t.Errorf("%s:%d: %q is not plain English: %s", file, i+1, w, comment)
			}
		}
	}
	if comments < 1500 {
		t.Fatalf("only %d comments seen: the walk is broken", comments)
	}
}

// plainPages are the documents and scripts that TestPlainPages checks, as patterns below the root. The findings,
// which quote what they found, and the glossary, which lists the words, are left out.
var plainPages = []string{
	"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/adr/*.md", "docs/api/*.md", "docs/evidence/*.md",
	"docs/launch/*.md", "docs/tutorials/*.md",
	"deploy/*.sh", "deploy/*.service", "internal/serve/api/properties.txt",
}

// notPlainPage is notPlain without "nobody", which is plain in a sentence.
var notPlainPage = regexp.MustCompile(`(?i)\b(whoever|somebody|anew|till|tells?|told|hears?|heard|the books|mended|purse|` +
	`for ever)\b`)

func TestPlainPages(t *testing.T) {
	t.Parallel()
	lines := 0
	for _, pattern := range plainPages {
		for _, file := range glob(t, "../../../"+pattern) {
			if base := filepath.Base(file); base == "findings.md" || base == "glossary.md" {
				continue
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(raw), "\n") {
				lines++
				if w := notPlainPage.FindString(line); w != "" {
					t.Errorf("%s:%d: %q is not plain English: %s", file, i+1, w, line)
				}
			}
		}
	}
	if lines < 4000 {
		t.Fatalf("only %d lines seen: the walk is broken", lines)
	}
}
