package docs

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/PuerkitoBio/goquery"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/docs"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/web/page"
)

var commands = map[string]string{"host": "# muster host\n\nEnrol hosts.\n\n## muster host list\n\nList your hosts.\n"}

// openAPI is the document that a server has.
var openAPI = sync.OnceValues(func() ([]byte, error) {
	return api.New(api.Config{Currency: "EUR", PublicURL: "https://muster.example"}, api.Deps{}).OpenAPI()
})

// wholeLibrary has all pages.
var wholeLibrary = sync.OnceValues(func() (*library, error) {
	document, err := openAPI()
	if err != nil {
		return nil, err
	}
	return newLibrary(docs.FS, sources{commands, document})
})

func testLibrary(t *testing.T) *library {
	t.Helper()
	l, err := wholeLibrary()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// addresses returns the addresses of all pages and headings.
func addresses(l *library) map[string]bool {
	ids := map[string]bool{}
	for _, d := range l.all {
		ids[d.URL()] = true
		for _, p := range d.parts {
			ids[d.URL()+"#"+p.id] = true
		}
	}
	return ids
}

func TestLibrary_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	l := testLibrary(t)
	ids := addresses(l)
	links := 0
	for _, d := range l.all {
		for _, link := range d.links {
			links++
			if strings.HasPrefix(link, base+"/") {
				if !ids[link] {
					t.Errorf("%s links to %s, which does not exist", d.Slug, link)
				}
			} else if _, err := os.Stat(filepath.Join("../../docs", link)); err != nil {
				t.Errorf("%s links to a file that does not exist: %s", d.Slug, link)
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links: the walk is broken", links)
	}
}

// Pages of the dashboard link to headings, too.
func TestLibrary_PagesLinkToIt(t *testing.T) {
	t.Parallel()
	ids := addresses(testLibrary(t))
	files, err := filepath.Glob("../*/*.templ")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`href="(/docs/[^"{]+)"`).FindAllStringSubmatch(string(source), -1) {
			links++
			if !ids[m[1]] {
				t.Errorf("%s links to %s, which does not exist", file, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no page links to the documentation")
	}
}

// unlisted are the documents that are for the people who work on Muster.
var unlisted = []string{"evidence/findings.md"}

func TestLibrary_HasEveryPage(t *testing.T) {
	t.Parallel()
	l := testLibrary(t)
	var files []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob("../../docs/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name, err := filepath.Rel("../../docs", file)
		if err != nil {
			t.Fatal(err)
		}
		if d := l.bySlug[slug(name)]; d == nil && !slices.Contains(unlisted, name) {
			t.Errorf("docs/%s has no place on the site: add it to the plan", name)
		} else if d != nil && (d.Title == "" || d.about == "") {
			t.Errorf("docs/%s has no title or does not begin with a sentence", name)
		}
	}
}

func TestLibrary_HeadingsAreUnique(t *testing.T) {
	t.Parallel()
	for _, d := range testLibrary(t).all {
		titles := map[string]bool{}
		for _, h := range d.Contents {
			if titles[h.Title] {
				t.Errorf("%s has two headings %q: a link cannot tell them apart", d.Slug, h.Title)
			}
			titles[h.Title] = true
		}
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	l := testLibrary(t)
	for _, tc := range []struct{ query, first string }{
		{"set up payouts", "/docs/hosts#5-set-up-payouts"},
		{"IMAGE_TOO_BIG", "/docs/images#when-a-pull-fails"},
		{"rent a cluster", "/docs/api/clusters#rent-a-cluster"},
		{"muster host list", "/docs/cli/host#muster-host-list"},
	} {
		hits := l.search(tc.query, false)
		if len(hits) == 0 || hits[0].URL != tc.first {
			t.Errorf("%s: %+v, want %s first", tc.query, hits[:min(len(hits), 3)], tc.first)
		}
	}
	for _, query := range []string{"", "  ", "zzyzx", "payouts zzyzx"} {
		if hits := append(l.search(query, false), l.search(query, true)...); len(hits) != 0 {
			t.Errorf("%q finds %+v", query, hits)
		}
	}
}

// Guides and design have a search each, and a page of results says what the other finds.
func TestSearch_HelpAndDesignAreTwo(t *testing.T) {
	t.Parallel()
	for query, found := range map[string][2]bool{ // in guides and reference, in the design
		"PostgreSQL is the only truth": {false, true}, "image_too_big": {true, false}, "volume": {true, true},
	} {
		for i, address := range []string{searchURL(query, false), searchURL(query, true)} {
			_, body := get(t, address)
			page, err := goquery.NewDocumentFromReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			hits := page.Find(".hits a").Length()
			other := page.Find(`[role=status] a[href^="/docs/search"]`).Length()
			if (hits > 0) != found[i] || (other > 0) != found[1-i] {
				t.Errorf("%s: %d hits, %d links to the other search", address, hits, other)
			}
			field := page.Find(`.docsearch input[name=in][value=design]`).Length()
			if (field == 1) != (i == 1) {
				t.Errorf("%s: the next search is in the design: %t", address, field == 1)
			}
		}
	}
}

func get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	r := chi.NewRouter()
	site := page.New(page.Config{
		Currency: "EUR",
		Log:      slog.New(slog.DiscardHandler),
		Commands: func() map[string]string { return commands },
		OpenAPI:  openAPI,
	})
	New(site).Routes(page.NewMux(site, r))
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

func TestPages(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		path     string
		status   int
		contains string
	}{
		{"/docs", 200, "/docs/tutorials/first-cluster"},
		{"/docs/hosts", 200, "On this page"},
		{"/docs/cli", 200, "/docs/cli/host"},
		{"/docs/cli/host", 200, "muster host list"},
		{"/docs/api", 200, "/docs/api/quick-start"},
		{"/docs/api/clusters", 200, "Rent a cluster"},
		{"/docs/adr", 200, "/docs/adr/0001-postgresql-is-the-only-truth"},
		{"/docs/launch", 200, "/docs/launch/ddp.py"},
		{"/docs/launch/ddp.py", 200, "init_process_group"},
		{"/docs/hardware/simulated", 200, "/docs/hardware/simulated/hgx-h100.json"},
		{"/docs/search?q=payouts", 200, "results"},
		{"/docs/search?q=%3Cscript%3E", 200, "&lt;script&gt;"},
		{"/docs/hosts.md", 301, ""},
		{"/docs/findings", 404, "Page not found"},
		{"/docs/evidence/findings.md", 404, "Page not found"},
		{"/docs/launch/../evidence/findings.md", 404, "Page not found"},
		{"/docs/docs.go", 404, "Page not found"},
	} {
		res, body := get(t, tc.path)
		if res.StatusCode != tc.status || !strings.Contains(body, tc.contains) {
			t.Errorf("%s: %d, want %d and %q", tc.path, res.StatusCode, tc.status, tc.contains)
		}
	}
}

// Every page links to the documentation.
func TestPages_FooterLinksDocs(t *testing.T) {
	t.Parallel()
	_, body := get(t, "/docs/nothing")
	page, err := goquery.NewDocumentFromReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if page.Find(`footer a[href="/docs"]`).Length() != 1 {
		t.Error("the footer does not link to /docs")
	}
}

// Inline styles and scripts would be blocked by the security policy of the pages. Columns without a title cannot be
// read aloud.
func TestPages_FitPolicyAndReaders(t *testing.T) {
	t.Parallel()
	for _, d := range testLibrary(t).all {
		page, err := goquery.NewDocumentFromReader(strings.NewReader(d.HTML))
		if err != nil {
			t.Fatal(err)
		}
		if n := page.Find("[style], script, style, [onclick]").Length(); n > 0 {
			t.Errorf("%s has %d inline styles or scripts", d.Slug, n)
		}
		if n := page.Find("h1").Length(); n != 1 {
			t.Errorf("%s has %d titles", d.Slug, n)
		}
		if n := page.Find("th:empty").Length(); n > 0 {
			t.Errorf("%s has %d columns without a title", d.Slug, n)
		}
	}
}

// TestReference_HasEveryOperation: each operation has a heading, a call with curl, its failures and its answer.
func TestReference_HasEveryOperation(t *testing.T) {
	t.Parallel()
	document, err := openAPI()
	if err != nil {
		t.Fatal(err)
	}
	var s spec
	if err := json.Unmarshal(document, &s); err != nil {
		t.Fatal(err)
	}
	l := testLibrary(t)
	operations := 0
	for path, item := range s.Paths {
		for method, op := range item {
			operations++
			d := l.bySlug["api/"+op.Tags[0]]
			if d == nil {
				t.Fatalf("no page for %s", op.Tags[0])
			}
			i := slices.IndexFunc(d.parts, func(p part) bool { return p.title == op.Summary })
			if i < 0 {
				t.Errorf("%s is not on its page", op.ID)
				continue
			}
			text := d.parts[i].text
			for _, want := range []string{strings.ToUpper(method) + " " + path, "curl ", "Answer: ", "failures"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s has no %q", op.ID, want)
				}
			}
		}
	}
	if operations < 150 {
		t.Errorf("only %d operations", operations)
	}
}

// TestReference_LinksToItsTypes: a type that a table names is on the same page.
func TestReference_LinksToItsTypes(t *testing.T) {
	t.Parallel()
	for _, d := range testLibrary(t).all {
		if !strings.HasPrefix(d.Slug, "api/") {
			continue
		}
		page, err := goquery.NewDocumentFromReader(strings.NewReader(d.HTML))
		if err != nil {
			t.Fatal(err)
		}
		page.Find(`a[href^="#"]`).Each(func(_ int, a *goquery.Selection) {
			if href, _ := a.Attr("href"); page.Find(`[id="`+href[1:]+`"]`).Length() != 1 {
				t.Errorf("%s: %s leads nowhere", d.Slug, href)
			}
		})
	}
}
