// Package front holds the pages that need no account: what Muster is, prices, the platform's status, terms and privacy.
// For visitors who are signed in, the front page is their first steps.
package front

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages that need no account. Make them with New.
type Pages struct {
	*page.Site
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{Site: site}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	m.Get("/", page.Anybody, s.home)
	m.Get("/pricing", page.Anybody, s.pricing)
	m.Get("/prices", page.Anybody, s.livePrices)
	m.Get("/cli", page.Anybody, s.cli)
	m.Get("/status", page.Anybody, s.status)
	m.Get("/terms", page.Anybody, s.terms)
	m.Get("/privacy", page.Anybody, s.privacy)
}
