package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/musterhq/muster/"

// floors is the plan of internal/: a package imports only floors below its own, never a sibling on it.
var floors = map[string]int{
	"money": 0, "id": 0, "fault": 0, "seal": 0, "db": 0, "agentapi": 0, "bus": 0, "signature": 0, "merkle": 0, "evidence": 0,
	"httpbody": 0, "text": 0, "interval": 0, "fairness": 0,
	"account": 1, "ledger": 1, "notify": 1, "audit": 1, "idem": 1, "tax": 1, "document": 1,
	"host": 2, "payment": 2, "budget": 2, "bond": 2,
	"market": 3, "metering": 3, "postpaid": 3,
	"cluster": 4,
	"payout":  5, "report": 5,
	"dialback": 6, "erasure": 6, "restore": 6,
	"nodelog": 7,
	"api":     8, "hostlink": 8, "gateway": 8, "worker": 8, "web": 8, "relay": 8,
}

// ground are the leaves of floor 0 that other leaves may use.
var ground = map[string]bool{"money": true, "id": true, "fault": true, "agentapi": true, "signature": true, "merkle": true, "text": true, "interval": true}

// beside are the rooms next to the floors, and who may enter them. An empty list means cmd/, bench/ and tests only.
var beside = map[string][]string{
	"stripepay":  {"payment", "payout", "postpaid", "stripetest"},
	"stripetest": {},
	"devstack":   {"testfield"},
	"dbtest":     {"testfield"},
	"testnet":    {"testfield"},
	"testfield":  {},
	"e2e":        {},
	"proof":      {},
	"archtest":   {},
}

func TestFloors(t *testing.T) {
	t.Parallel()
	imports := 0
	eachImport(t, func(file, from, to string) {
		imports++
		fromRoom, toRoom := room(from), room(to)
		switch {
		case fromRoom == toRoom:
		case strings.HasPrefix(from, "cmd/"), strings.HasPrefix(from, "bench"), fromRoom == "devstack":
			// the only places that wire
		case strings.HasPrefix(to, "cmd/"):
			t.Errorf("%s imports a command, %s", file, to)
		case fromRoom == "agent":
			if to != "internal/agentapi" && to != "internal/id" && to != "internal/fault" {
				t.Errorf("%s: the agent imports %s; it may use agentapi and leaves only", file, to)
			}
		case fromRoom == "client":
			if to != "internal/fault" && to != "internal/money" && to != "internal/id" {
				t.Errorf("%s: the client imports %s; it may use leaves only", file, to)
			}
		case toRoom == "static", toRoom == "migrations":
			// embedded files
		default:
			checkFloor(t, file, fromRoom, toRoom)
		}
	})
	if imports < 200 {
		t.Fatalf("only %d imports seen: the walk is broken", imports)
	}
}

func checkFloor(t *testing.T, file, from, to string) {
	t.Helper()
	if guests, ok := beside[to]; ok {
		if !slices.Contains(guests, from) {
			t.Errorf("%s: %s imports %s, which stands beside the floors", file, from, to)
		}
		return
	}
	if _, ok := beside[from]; ok {
		return
	}
	f, known := floors[from]
	g, target := floors[to]
	switch {
	case !known:
		t.Errorf("%s: %s has no floor: add it to the plan", file, from)
	case !target:
		t.Errorf("%s: %s imports %s, which has no floor", file, from, to)
	case ground[to]:
	case to == "audit" && f >= 1:
		// every act leaves a trail, those of audit's own floor too
	case g >= f:
		t.Errorf("%s: %s (floor %d) imports %s (floor %d)", file, from, f, to, g)
	}
}

// room is the folder the plan speaks of: the first one below internal/, or the top-level one.
func room(p string) string {
	r, _, _ := strings.Cut(strings.TrimPrefix(p, "internal/"), "/")
	return r
}

// eachImport visits every import of one of our packages by another, tests excluded.
func eachImport(t *testing.T, visit func(file, from, to string)) {
	t.Helper()
	eachSource(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		for _, im := range importsOf(t, file) {
			if to, ours := strings.CutPrefix(im, module); ours {
				visit(file, path.Dir(file), to)
			}
		}
	})
}

// eachSource visits every Go file by its path below the repository's root.
func eachSource(t *testing.T, visit func(file string)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "tools", "node_modules"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		rel, err := filepath.Rel(root, p)
		visit(filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", file), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, im := range f.Imports {
		s, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// TestOnlyStripepaySpeaksToStripe keeps Stripe's library behind one door.
func TestOnlyStripepaySpeaksToStripe(t *testing.T) {
	t.Parallel()
	eachSource(t, func(file string) {
		for _, im := range importsOf(t, file) {
			if strings.Contains(im, "stripe/stripe-go") && !strings.HasPrefix(file, "internal/stripe") {
				t.Errorf("%s imports stripe-go; only internal/stripepay and its test double may", file)
			}
		}
	})
}
