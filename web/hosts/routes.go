// Package hosts holds the pages of an operator: hosts, enrolment, earnings, the bond, payouts.
package hosts

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of an operator: hosts, earnings, bond, payouts. Make them with New.
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
	get("/hosts", page.SignedIn, s.hosts)
	get("/hosts/statement", page.SignedIn, s.earningsPage)
	get("/hosts/statement.csv", page.SignedIn, s.earningsCSV)
	post("/hosts/enrollments", page.SignedIn, s.enrollHost)
	get("/hosts/enrollments/{id}", page.SignedIn, s.enrollmentProgress)
	get("/hosts/bond", page.SignedIn, s.bondPage)
	get("/hosts/bond/clusters/{id}", page.SignedIn, s.bondEvidence)
	post("/hosts/bond/deposit", page.SignedIn, s.depositBond)
	post("/hosts/bond/withdraw", page.SignedIn, s.withdrawBond)
	post("/hosts/bond/terms", page.SignedIn, s.setBondTerms)
	get("/hosts/{id}", page.SignedIn, s.hostPage)
	post("/hosts/{id}/liability", page.SignedIn, s.limitHost)
	post("/hosts/{id}/terms", page.SignedIn, s.setTerms)
	post("/hosts/{id}/actions", page.SignedIn, s.actOnHost)
	post("/hosts/{id}/reclaim", page.SignedIn, s.reclaimHost)
	post("/hosts/{id}/agent", page.SignedIn, s.followChannel)
	post("/hosts/{id}/data", page.SignedIn, s.setDataCap)
	get("/payouts", page.SignedIn, s.payoutsPage)
	post("/payouts/account", page.SignedIn, s.setUpPayouts)
}
