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
	get("/hosts", page.ReadHosts, s.hosts)
	get("/hosts/statement", page.ReadHosts, s.earningsPage)
	get("/hosts/statement.csv", page.ReadHosts, s.earningsCSV)
	post("/hosts/enrollments", page.WriteHosts, s.enrollHost)
	post("/hosts/enrolling", page.Anybody, s.enrollStep)
	get("/hosts/enrollments/{id}", page.ReadHosts, s.enrollmentProgress)
	post("/hosts/several", page.WriteHosts, s.onSeveral)
	get("/hosts/bond", page.ReadHosts, s.bondPage)
	get("/hosts/bond/clusters/{id}", page.ReadHosts, s.bondEvidence)
	post("/hosts/bond/deposit", page.WriteBilling, s.depositBond)
	post("/hosts/bond/withdraw", page.WriteBilling, s.withdrawBond)
	post("/hosts/bond/terms", page.WriteHosts, s.setBondTerms)
	get("/hosts/{id}", page.ReadHosts, s.hostPage)
	post("/hosts/{id}/liability", page.WriteHosts, s.limitHost)
	post("/hosts/{id}/terms", page.WriteHosts, s.setTerms)
	post("/hosts/{id}/actions", page.WriteHosts, s.actOnHost)
	post("/hosts/{id}/reclaim", page.WriteHosts, s.reclaimHost)
	post("/hosts/{id}/agent", page.WriteHosts, s.followChannel)
	post("/hosts/{id}/data", page.WriteHosts, s.setDataCap)
	get("/payouts", page.ReadPayouts, s.payoutsPage)
	post("/payouts/account", page.WriteBilling, s.setUpPayouts)
}
