// Package docs holds the documentation site at /docs: an index, a page for each document, the references of the
// command line and of the REST API, and a search. The documents are the Markdown files of the repository's folder docs.
package docs

import (
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/docs"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of the documentation. Make them with New.
type Pages struct {
	*page.Site
	library func() (*library, error) // rendered at the first request
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{site, sync.OnceValues(func() (*library, error) {
		var sources sources
		if site.Commands != nil {
			sources.commands = site.Commands()
		}
		if site.OpenAPI != nil {
			var err error
			if sources.openAPI, err = site.OpenAPI(); err != nil {
				return nil, err
			}
		}
		return newLibrary(docs.FS, sources)
	})}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	m.Get("/docs", page.Anybody, s.index)
	m.Get("/docs/search", page.Anybody, s.search)
	m.Get("/docs/*", page.Anybody, s.document)
}

func (s *Pages) index(v *page.Visit) error {
	l, err := s.library()
	if err != nil {
		return err
	}
	return s.Render(v, IndexPage(v.Page("Documentation", "docs"), l.menu))
}

// maxQuery bounds what a search reads of its query, in bytes.
const maxQuery = 200

// inDesign is the value of the field "in" that searches the design's pages.
const inDesign = "design"

func (s *Pages) search(v *page.Visit) error {
	l, err := s.library()
	if err != nil {
		return err
	}
	q := strings.TrimSpace(v.R.FormValue("q"))
	if len(q) > maxQuery {
		q = strings.ToValidUTF8(q[:maxQuery], "")
	}
	r := l.results(q, v.R.FormValue("in") == inDesign)
	return s.Render(v, SearchPage(v.Page("Search the documentation", "docs"), l.menu, r))
}

// document shows a page, or a file that a page links to.
func (s *Pages) document(v *page.Visit) error {
	l, err := s.library()
	if err != nil {
		return err
	}
	name := chi.URLParam(v.R, "*")
	if d := l.bySlug[name]; d != nil {
		return s.Render(v, DocumentPage(v.Page(d.Title, "docs"), l.menu, *d))
	}
	if slug, ok := strings.CutSuffix(name, ".md"); ok && l.bySlug[slug] != nil {
		http.Redirect(v.W, v.R, base+"/"+slug, http.StatusMovedPermanently)
		return nil
	}
	if !isFile(name) {
		return fault.New(fault.NotFound, "page not found")
	}
	return s.serveFile(v, l, name)
}

// isFile reports whether a page may link to this file or folder: an example, or a sample report.
func isFile(name string) bool {
	if !fs.ValidPath(name) {
		return false
	}
	dir, _, _ := strings.Cut(name, "/")
	return dir == "hardware" || dir == "launch" && path.Ext(name) != "" && path.Ext(name) != ".md"
}

// serveFile shows a file as plain text, and a folder as the list of its files.
func (s *Pages) serveFile(v *page.Visit, l *library, name string) error {
	info, err := fs.Stat(docs.FS, name)
	if err != nil {
		return fault.New(fault.NotFound, "page not found")
	}
	if info.IsDir() {
		entries, err := fs.ReadDir(docs.FS, name)
		if err != nil {
			return err
		}
		var links []Link
		for _, e := range entries {
			links = append(links, Link{e.Name(), base + "/" + path.Join(name, e.Name())})
		}
		return s.Render(v, FolderPage(v.Page(name, "docs"), l.menu, name, links))
	}
	b, err := fs.ReadFile(docs.FS, name)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err = v.W.Write(b)
	return err
}
