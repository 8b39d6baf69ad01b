// Package offers holds the pages of the market: search, quotes, renting.
package offers

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of the market. Make them with New.
type Pages struct {
	*page.Site
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{Site: site}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	get, post := m.Get, m.Post
	get("/offers", page.Anybody, s.offers)
	get("/offers/filter", page.Anybody, s.filter)
	get("/offers/compare", page.Anybody, s.compare)
	get("/offers/choose", page.Anybody, s.choose)
	get("/offers/{id}", page.Anybody, s.offer)
	get("/estimate", page.Anybody, s.estimate)
	post("/estimate", page.Anybody, s.estimate)
	post("/offers/lines", page.Anybody, s.lines)
	post("/offers/form", page.Anybody, s.changeRows)
	get("/templates", page.Anybody, s.templates)
	post("/templates", page.WriteClusters, s.saveTemplate)
	post("/templates/{name}/delete", page.WriteClusters, s.deleteTemplate)
	post("/quotes", page.WriteClusters, s.makeQuote)
	post("/quotes/{id}/return", page.WriteClusters, s.returnQuote)
	post("/clusters", page.WriteClusters, s.rent)
}
