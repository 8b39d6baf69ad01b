package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plainRooms are the rooms whose comments and texts TestPlainWords checks.
var plainRooms = []string{
	"audit", "billing/billproof", "billing/bond", "billing/budget", "billing/document", "billing/fairness",
	"billing/ledger", "billing/metering", "billing/payment", "billing/payout", "billing/postpaid", "billing/statement",
	"billing/tax", "erasure", "idem", "money", "notify", "stripe", "stripe/events", "stripe/outbox", "stripe/reconcile",
	"stripe/sandbox", "account", "bus", "db", "agentapi", "metrics", "restore", "httpbody", "server", "cli", "cli/base",
	"cli/account", "cli/admin", "cli/billing", "cli/cluster", "cli/host", "cli/platform", "client", "serve/api",
	"serve/gateway", "serve/hostlink", "serve/relay", "serve/releases", "serve/worker", "fleet/template",
	"fleet/dialback", "fleet/nodelog",
}

// notPlain are words and phrases that a reader has to translate: archaic ones, and verbs of speech where no person
// speaks.
var notPlain = regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|anew|till|tells?|told|hears?|heard|the books|mended|` +
	`purse|for ever)\b`)

// TestPlainWords checks the comments and string constants of plainRooms.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	checked := 0
	eachSource(t, func(file string) {
		dir := filepath.ToSlash(filepath.Dir(file))
		if !slices.Contains(plainRooms, strings.TrimPrefix(dir, "internal/")) {
			return
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join("..", "..", "..", file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		check := func(at token.Pos, text string) {
			checked++
			if w := notPlain.FindString(text); w != "" {
				t.Errorf("%s: %q is not plain English: %s", fset.Position(at), w, text)
			}
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				check(c.Pos(), c.Text)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !strings.HasSuffix(file, "_test.go") {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					check(lit.Pos(), s)
				}
			}
			return true
		})
	})
	if checked < 5000 {
		t.Fatalf("only %d texts seen: the walk is broken", checked)
	}
}

// plainPages are the documents and scripts that TestPlainPages checks, as patterns below the root. The changelog's
// older entries, the findings, which quote what they mend, and the glossary, which lists the words, are left out.
var plainPages = []string{
	"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/adr/*.md", "docs/api/*.md", "docs/launch/*.md",
	"docs/tutorials/*.md",
	"deploy/*.sh", "deploy/*.service", "internal/serve/api/properties.txt",
}

// notPlainPage is notPlain without nobody, which is plain in a sentence.
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
