package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// pages are the packages of web and which others of them each may import. Package web wires them all.
var pages = map[string][]string{
	"web/view":     {},
	"web/page":     {"web/view"},
	"web/accounts": {"web/view", "web/page"},
	"web/notices":  {"web/view", "web/page"},
	"web/front":    {"web/view", "web/page"},
	"web/offers":   {"web/view", "web/page"},
	"web/clusters": {"web/view", "web/page"},
	"web/volumes":  {"web/view", "web/page"},
	"web/hosts":    {"web/view", "web/page"},
	"web/billing":  {"web/view", "web/page", "web/clusters"},
	"web/admin":    {"web/view", "web/page", "web/billing", "web/clusters", "web/hosts"},
	"web/docs":     {"web/view", "web/page"},
	"web": {"web/view", "web/page", "web/accounts", "web/notices", "web/front", "web/offers", "web/clusters", "web/hosts",
		"web/billing", "web/admin", "web/docs", "web/volumes"},
}

// TestPagesStandOnTheirFrame: the parts of the dashboard share the frame and the components, and little else.
func TestPagesStandOnTheirFrame(t *testing.T) {
	t.Parallel()
	imports := 0
	eachImport(t, func(file, from, to string) {
		if room(from) != "web" || room(to) != "web" {
			return
		}
		imports++
		if may, known := pages[from]; !known {
			t.Errorf("%s: %s is not in the plan of the pages", file, from)
		} else if !slices.Contains(may, to) {
			t.Errorf("%s: %s imports %s", file, from, to)
		}
	})
	if imports < 100 {
		t.Fatalf("only %d imports seen: the walk is broken", imports)
	}
}

// maxFiles is how many hand-written files a folder of pages may have; tests and generated code do not count.
const maxFiles = 30

func TestFoldersOfPagesAreSmall(t *testing.T) {
	t.Parallel()
	files := map[string]int{}
	eachSource(t, func(file string) {
		if dir := path.Dir(file); room(dir) == "web" && !strings.HasSuffix(file, "_test.go") {
			files[dir]++ // a templ file counts by what is generated from it
		}
	})
	if len(files) != len(pages) {
		t.Errorf("%d folders of pages, %d planned", len(files), len(pages))
	}
	for dir, n := range files {
		if n > maxFiles {
			t.Errorf("%s has %d files: split it by topic", dir, n)
		}
	}
}
