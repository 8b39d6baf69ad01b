package page

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whatever the code records has words on the page: the source itself is asked what it records.
func TestEveryActHasWords(t *testing.T) {
	t.Parallel()
	// The arguments before the act may end on the line before it.
	records := regexp.MustCompile(`\b(?:Event|act|move|record|alert|decideReview|contestEvent)\(` +
		`(?:[^"\n]*(?:\n[^"\n]*)?,\s*)?\s*"([a-z_]+\.[a-z_]+)"|\bAction:\s+"([a-z_]+\.[a-z_]+)"`)
	found := map[string]bool{}
	for _, root := range []string{"..", "../../internal"} {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range records.FindAllSubmatch(source, -1) {
				found[string(m[1])+string(m[2])] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for act := range found {
		if acts[act] == "" {
			t.Errorf("%s has no words", act)
		}
	}
	for act := range acts {
		if !found[act] {
			t.Errorf("nothing records %s", act)
		}
	}
}

func TestDetailsOfTheTrailAreReadable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, stored, want string }{
		{"amount", `"100.000000000"`, "100.00"},
		{"price_per_hour", `"19.200000"`, "19.20"},
		{"name", `"100.000000000"`, "100.000000000"}, // a name that looks like money is a name
		{"was_limit", `"0.000000000"`, "0.00"},
		{"fee_ppm", `150000`, "15 %"},
		{"fee_ppm", `12500`, "1.25 %"},
		{"percent", `5`, "5 %"},
		{"gpus_per_node", `4`, "4"},
		{"max_uses", `1000000`, "1000000"},
		{"notice_seconds", `3600`, "1 h 00 min"},
		{"scopes", `["read","clusters"]`, "read, clusters"},
		{"at", `"2026-11-22T07:31:47.123456Z"`, "2026-11-22 07:31:47"},
		{"stopped", `true`, "yes"},
		{"stopped", `false`, "no"},
		{"project", `""`, ""},
		{"limits", `{"cap":"5.000000000","gpus":2}`, "cap 5.00, GPUs 2"},
		{"nothing", `null`, ""},
	} {
		var v any
		if err := json.Unmarshal([]byte(c.stored), &v); err != nil {
			t.Fatal(err)
		}
		if got := detailText(c.key, v); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.key, c.stored, got, c.want)
		}
	}
}
