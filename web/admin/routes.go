// Package admin is the console of the platform's staff. To everybody else its pages do not exist.
package admin

import (
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/web/page"
)

// Pages are the admin console. Make them with New.
type Pages struct {
	*page.Site
	trial *statement.Trial
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{Site: site, trial: site.Statements.NewTrial(site.TrialAge, site.Now)}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	get, post := m.Get, m.Post
	get("/admin", page.PlatformAdmin, s.admin)
	get("/admin/orgs", page.PlatformAdmin, s.orgs)
	get("/admin/orgs/{id}", page.PlatformAdmin, s.orgPage)
	post("/admin/orgs/{id}/fee", page.PlatformAdmin, s.setFee)
	post("/admin/orgs/{id}/pay", page.PlatformAdmin, s.payOrg)
	post("/admin/orgs/{id}/stop", page.PlatformAdmin, s.stopOrg)
	post("/admin/orgs/{id}/reverse", page.PlatformAdmin, s.reversePayout)
	post("/admin/orgs/{id}/unfreeze", page.PlatformAdmin, s.unfreezeOrg)
	post("/admin/orgs/{id}/reviews", page.PlatformAdmin, s.reviewOfOrg)
	post("/admin/orgs/{id}/write-off", page.PlatformAdmin, s.writeOff)
	post("/admin/orgs/{id}/bank-payment", page.PlatformAdmin, s.bankPayment)
	post("/admin/orgs/{id}/release-refund", page.PlatformAdmin, s.releaseRefund)
	post("/admin/orgs/{id}/forgive-disputes", page.PlatformAdmin, s.forgiveDisputes)
	get("/admin/payouts", page.PlatformAdmin, s.payoutRun)
	post("/admin/payouts", page.PlatformAdmin, s.runPayouts)
	post("/admin/sending", page.PlatformAdmin, s.setSending)
	get("/admin/reviews", page.PlatformAdmin, s.reviews)
	post("/admin/reviews", page.PlatformAdmin, s.decide)
	get("/admin/tax", page.PlatformAdmin, s.taxPage)
	post("/admin/tax", page.PlatformAdmin, s.remitTax)
	get("/admin/promo", page.PlatformAdmin, s.promoPage)
	post("/admin/promo", page.PlatformAdmin, s.createPromo)
	post("/admin/promo/{code}/disable", page.PlatformAdmin, s.disablePromo)
	get("/admin/gangs", page.PlatformAdmin, s.gangs)
	post("/admin/gangs/credits", page.PlatformAdmin, s.decideHeldCredit)
	get("/admin/contests", page.PlatformAdmin, s.contests)
	post("/admin/contests", page.PlatformAdmin, s.awardGPU)
	get("/admin/documents", page.PlatformAdmin, s.allDocuments)
	get("/admin/documents/{number}", page.PlatformAdmin, s.anyDocumentPage)
	get("/admin/audit", page.PlatformAdmin, s.auditPage)
	get("/admin/audit.csv", page.PlatformAdmin, s.auditCSV)
	get("/admin/books", page.PlatformAdmin, s.ledger)
	get("/admin/books/entries", page.PlatformAdmin, s.ledgerEntries)
	get("/admin/books/period", page.PlatformAdmin, s.period)
	get("/admin/books/journal", page.PlatformAdmin, s.journal)
	get("/admin/books/orgs", page.PlatformAdmin, s.orgsAt)
	get("/admin/books/proposals", page.PlatformAdmin, s.proposals)
	post("/admin/books/proposals", page.PlatformAdmin, s.propose)
	post("/admin/books/proposals/decide", page.PlatformAdmin, s.decideProposal)
	post("/admin/books/compensations", page.PlatformAdmin, s.compensate)
	post("/admin/books/unfreeze", page.PlatformAdmin, s.unfreeze)
	get("/admin/agents", page.PlatformAdmin, s.agents)
	post("/admin/agents", page.PlatformAdmin, s.setChannel)
	post("/admin/version-floors", page.PlatformAdmin, s.setFloor)
	post("/admin/version-floors/remove", page.PlatformAdmin, s.removeFloor)
}
