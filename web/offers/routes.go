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
	post("/quotes", page.SignedIn, s.makeQuote)
	post("/quotes/{id}/return", page.SignedIn, s.returnQuote)
	post("/clusters", page.SignedIn, s.rent)
}
