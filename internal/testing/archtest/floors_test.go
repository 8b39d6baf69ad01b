package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/musterhq/muster/"

// floors is the plan of internal/, which the table of docs/architecture.md has: a package imports only floors below its
// own, never a sibling on it.
var floors = readFloors(filepath.Join("..", "..", "..", "docs", "architecture.md"))

// row is a room in one of the tables of the page, with its floor where it has one.
var row = regexp.MustCompile("(?m)^\\| (?:(\\d+) \\| )?`([a-z0-9/]+)` \\| .+ \\|$")

func readFloors(page string) map[string]int {
	raw, err := os.ReadFile(page)
	if err != nil {
		panic(err)
	}
	floors := map[string]int{}
	for _, m := range row.FindAllStringSubmatch(string(raw), -1) {
		if floor, err := strconv.Atoi(m[1]); err == nil {
			floors[m[2]] = floor
		}
	}
	return floors
}

// ground are the leaves of floor 0 that other leaves may use.
var ground = map[string]bool{
	"tracing":   true,
	"money":     true,
	"id":        true,
	"fault":     true,
	"agentapi":  true,
	"signature": true,
	"merkle":    true,
	"text":      true,
	"interval":  true,
	"publicnet": true,
	// chunks are what manifests consist of
	"data/chunk": true,
	// what a store does wrong is said in the same words wherever packs are read or written
	"data/packio": true,
}

// mountImports are what cmd/muster-mount may import.
var mountImports = []string{"agent/storage/fusemount/wire", "agent/storage/lazy/reader", "agent/unixsock",
	"internal/data/chunk", "internal/data/manifest", "internal/data/packio", "internal/publicnet"}

// asides are the rooms next to the floors, and who may enter them. An empty list means cmd/, bench/ and tests only.
var asides = map[string][]string{
	"stripe": {"stripe/outbox", "stripe/events", "stripe/reconcile", "billing/payment", "billing/payout",
		"billing/postpaid", "stripe/sandbox", "server", "cli", "testing/billingtest"},
	"stripe/sandbox":      {"server", "testing/billingtest"},
	"devstack":            {"testing/testfield", "server", "cli"},
	"testing/dbtest":      {"testing/testfield", "testing/fleettest", "testing/billingtest"},
	"testing/testnet":     {"testing/testfield"},
	"testing/billingtest": {},
	"testing/fleettest":   {},
	"testing/testfield":   {},
	"testing/s3test":      {},
	"testing/cephtest":    {"testing/s3test", "testing/sharedtest"},
	"testing/child":       {"testing/s3test", "testing/cephtest", "testing/sharedtest"},
	"testing/sharedtest":  {},
	"testing/e2e":         {},
	"testing/datakills":   {},
	"testing/datafaults":  {},
	"testing/model":       {},
	"testing/archtest":    {},
	"testing/apifuzz":     {},
}

func TestFloors(t *testing.T) {
	t.Parallel()
	imports := 0
	eachImport(t, func(file, from, to string) {
		imports++
		fromRoom, toRoom := room(from), room(to)
		switch {
		case fromRoom == toRoom:
		case from == "cmd/muster-mount": // a module of its own: rclone is no part of the other programs
			if !slices.Contains(mountImports, to) {
				t.Errorf("%s imports %s: what mounts a bucket or a volume is to stay small", file, to)
			}
		case from == "cmd/musterd" && to == "internal/cli/platform":
		case strings.HasPrefix(from, "cmd/"):
			if to != "internal/cli" && to != "agent/self/cli" && to != "agent/workload/guest/cli" &&
				to != "internal/devstack/demojob" {
				t.Errorf("%s imports %s: a command is one call of its package cli", file, to)
			}
		case strings.HasPrefix(from, "bench"), fromRoom == "devstack":
			// they wire rooms of every floor
		case strings.HasPrefix(to, "cmd/"):
			t.Errorf("%s imports a command, %s", file, to)
		case fromRoom == "agent":
			if to != "internal/agentapi" && to != "internal/id" && to != "internal/fault" &&
				to != "internal/data/chunk" && to != "internal/data/manifest" && to != "internal/data/packio" {
				t.Errorf("%s: the agent imports %s; it may use agentapi and leaves only", file, to)
			}
		case fromRoom == "client":
			if to != "internal/fault" && to != "internal/money" && to != "internal/id" {
				t.Errorf("%s: the client imports %s; it may use leaves only", file, to)
			}
		case toRoom == "static", toRoom == "migrations", toRoom == "docs", toRoom == "deploy":
			// embedded files
		default:
			checkFloor(t, file, fromRoom, toRoom)
		}
	})
	if imports < 200 {
		t.Fatalf("only %d imports seen: the walk is broken", imports)
	}
}

// The command line that people install has nothing of the control plane in it.
func TestTheCommandLineIsAlone(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{}
	eachImport(t, func(file, from, to string) {
		if !strings.HasSuffix(file, "_test.go") {
			imports[from] = append(imports[from], to)
		}
	})
	reached := map[string]bool{}
	var walk func(string)
	walk = func(p string) {
		for _, to := range imports[p] {
			if !reached[to] {
				reached[to] = true
				walk(to)
			}
		}
	}
	walk("cmd/muster")
	for _, p := range []string{"internal/db", "internal/server", "internal/stripe", "internal/devstack",
		"internal/cli/platform", "web"} {
		if reached[p] {
			t.Errorf("cmd/muster reaches %s", p)
		}
	}
	if !reached["internal/cli/cluster"] {
		t.Error("cmd/muster reaches no command: imports are not read right")
	}
}

func checkFloor(t *testing.T, file, from, to string) {
	t.Helper()
	if guests, ok := asides[to]; ok {
		if !slices.Contains(guests, from) {
			t.Errorf("%s: %s imports %s, which stands beside the floors", file, from, to)
		}
		return
	}
	if _, ok := asides[from]; ok {
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
	case (to == "audit" || to == "idem") && f >= 1:
		// use cases on the floor of audit and idem record what was done and remember their result, too
	case g >= f:
		t.Errorf("%s: %s (floor %d) imports %s (floor %d)", file, from, f, to, g)
	}
}

// groups are the folders of internal/ that hold rooms themselves.
var groups = []string{"fleet", "billing", "data", "serve", "stripe", "testing"}

// room is the folder that the plan names: the first one below internal/, or below a group of rooms in it, or the
// top-level one.
func room(p string) string {
	r, rest, _ := strings.Cut(strings.TrimPrefix(p, "internal/"), "/")
	if !slices.Contains(groups, r) {
		return r
	}
	below, _, _ := strings.Cut(rest, "/")
	if inner := r + "/" + below; floors[inner] > 0 || known(inner) {
		return inner
	}
	return r
}

func known(room string) bool {
	_, floor := floors[room]
	_, side := asides[room]
	return floor || side
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
	root := filepath.Join("..", "..", "..")
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
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "..", file), nil, parser.ImportsOnly)
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
			if strings.Contains(im, "stripe/stripe-go") && path.Dir(file) != "internal/stripe" &&
				path.Dir(file) != "internal/stripe/sandbox" {
				t.Errorf("%s imports stripe-go; only internal/stripe and its test double may", file)
			}
		}
	})
}
