package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// banned are words that the code once used for many different things. docs/glossary.md has the words to use instead.
var banned = []string{
	"ask", "asks", "asked", "asking", "say", "says", "said", "tell", "tells", "told", "hear", "hears", "heard", "speak",
	"speaks",
	"anew", "till", "whoever", "somebody", "nobody", "beside", "besides",
	"desk", "purse", "trail", "books", "taking", "takings",
}

// word is one word of an identifier in mixed caps.
var word = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// TestNoBannedWords checks the names of functions, types, methods, fields, constants and package variables. Local
// variables and the names of tests are not checked.
func TestNoBannedWords(t *testing.T) {
	t.Parallel()
	names := 0
	eachSource(t, func(file string) {
		if strings.Contains(file, "/dbq/") || strings.HasSuffix(file, "_templ.go") {
			return // generated
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join("..", "..", "..", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range declared(f) {
			names++
			for _, w := range word.FindAllString(id.Name, -1) {
				if slices.Contains(banned, strings.ToLower(w)) {
					t.Errorf("%s: %s: the word %q is not used in names; see docs/glossary.md", fset.Position(id.Pos()), id.Name,
						strings.ToLower(w))
				}
			}
		}
	})
	if names < 5000 {
		t.Fatalf("only %d names seen: the walk is broken", names)
	}
}

// declared are the identifiers that a file declares outside functions, tests excluded.
func declared(f *ast.File) (ids []*ast.Ident) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if !strings.HasPrefix(n.Name.Name, "Test") && !strings.HasPrefix(n.Name.Name, "Benchmark") {
				ids = append(ids, n.Name)
			}
			return false
		case *ast.TypeSpec:
			ids = append(ids, n.Name)
		case *ast.ValueSpec:
			ids = append(ids, n.Names...)
		case *ast.StructType:
			for _, field := range n.Fields.List {
				ids = append(ids, field.Names...)
			}
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				ids = append(ids, method.Names...)
			}
		}
		return true
	})
	return ids
}

// entry is a word that docs/glossary.md explains.
var entry = regexp.MustCompile(`(?m)^\| \*\*.+\*\* \|`)

// TestTheGlossaryIsShort keeps docs/glossary.md to what a newcomer can read at once, and every banned word in it.
func TestTheGlossaryIsShort(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join("..", "..", "..", "docs", "glossary.md"))
	if n := len(entry.FindAllString(page, -1)); n == 0 || n > 60 {
		t.Errorf("the glossary has %d entries, want 1 to 60", n)
	}
	for _, w := range banned {
		if !strings.Contains(page, "`"+w+"`") {
			t.Errorf("docs/glossary.md does not list the banned word %q", w)
		}
	}
}
