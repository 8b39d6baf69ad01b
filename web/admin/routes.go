// Package admin is the console of the platform's staff. To everybody else its pages do not exist.
package admin

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the admin console. Make them with New.
type Pages struct {
	console   *consolePages
	orgs      *orgPages
	payouts   *payoutPages
	tax       *taxPages
	promo     *promoPages
	gangs     *gangPages
	contests  *contestPages
	documents *documentPages
	audit     *auditPages
	ledger    *ledgerPages
	period    *periodPages
	proposals *proposalPages
	agents    *agentPages
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	payouts := &payoutPages{site}
	postpaid := &postpaidPages{site}
	ledger := &ledgerPages{site, postpaid}
	return &Pages{
		console:   &consolePages{site, site.Statements.NewTrial(site.TrialAge, site.Now)},
		orgs:      &orgPages{site, ledger, payouts, postpaid},
		payouts:   payouts,
		tax:       &taxPages{site},
		promo:     &promoPages{site},
		gangs:     &gangPages{site},
		contests:  &contestPages{site},
		documents: &documentPages{site},
		audit:     &auditPages{site},
		ledger:    ledger,
		period:    &periodPages{site},
		proposals: &proposalPages{site},
		agents:    &agentPages{site},
	}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	get, post := m.Get, m.Post
	get("/admin", page.PlatformAdmin, s.console.admin)
	get("/admin/orgs", page.PlatformAdmin, s.orgs.orgs)
	get("/admin/orgs/{id}", page.PlatformAdmin, s.orgs.orgPage)
	post("/admin/orgs/{id}/fee", page.PlatformAdmin, s.orgs.setFee)
	post("/admin/orgs/{id}/pay", page.PlatformAdmin, s.orgs.payOrg)
	post("/admin/orgs/{id}/stop", page.PlatformAdmin, s.orgs.stopOrg)
	post("/admin/orgs/{id}/reverse", page.PlatformAdmin, s.orgs.reversePayout)
	post("/admin/orgs/{id}/unfreeze", page.PlatformAdmin, s.orgs.unfreezeOrg)
	post("/admin/orgs/{id}/reviews", page.PlatformAdmin, s.orgs.reviewOfOrg)
	post("/admin/orgs/{id}/write-off", page.PlatformAdmin, s.orgs.writeOff)
	post("/admin/orgs/{id}/bank-payment", page.PlatformAdmin, s.orgs.bankPayment)
	post("/admin/orgs/{id}/release-refund", page.PlatformAdmin, s.orgs.releaseRefund)
	post("/admin/orgs/{id}/forgive-disputes", page.PlatformAdmin, s.orgs.forgiveDisputes)
	get("/admin/payouts", page.PlatformAdmin, s.payouts.payoutRun)
	post("/admin/payouts", page.PlatformAdmin, s.payouts.runPayouts)
	post("/admin/sending", page.PlatformAdmin, s.payouts.setSending)
	get("/admin/reviews", page.PlatformAdmin, s.payouts.reviews)
	post("/admin/reviews", page.PlatformAdmin, s.payouts.decide)
	get("/admin/tax", page.PlatformAdmin, s.tax.taxPage)
	post("/admin/tax", page.PlatformAdmin, s.tax.remitTax)
	get("/admin/promo", page.PlatformAdmin, s.promo.promoPage)
	post("/admin/promo", page.PlatformAdmin, s.promo.createPromo)
	post("/admin/promo/{code}/disable", page.PlatformAdmin, s.promo.disablePromo)
	get("/admin/gangs", page.PlatformAdmin, s.gangs.gangs)
	post("/admin/gangs/credits", page.PlatformAdmin, s.gangs.decideHeldCredit)
	get("/admin/contests", page.PlatformAdmin, s.contests.contests)
	post("/admin/contests", page.PlatformAdmin, s.contests.awardGPU)
	get("/admin/documents", page.PlatformAdmin, s.documents.allDocuments)
	get("/admin/documents/{number}", page.PlatformAdmin, s.documents.anyDocumentPage)
	get("/admin/audit", page.PlatformAdmin, s.audit.auditPage)
	get("/admin/audit.csv", page.PlatformAdmin, s.audit.auditCSV)
	get("/admin/books", page.PlatformAdmin, s.ledger.ledger)
	get("/admin/books/entries", page.PlatformAdmin, s.ledger.ledgerEntries)
	get("/admin/books/period", page.PlatformAdmin, s.period.period)
	get("/admin/books/journal", page.PlatformAdmin, s.period.journal)
	get("/admin/books/orgs", page.PlatformAdmin, s.period.orgsAt)
	get("/admin/books/proposals", page.PlatformAdmin, s.proposals.proposals)
	post("/admin/books/proposals", page.PlatformAdmin, s.proposals.propose)
	post("/admin/books/proposals/decide", page.PlatformAdmin, s.proposals.decideProposal)
	post("/admin/books/compensations", page.PlatformAdmin, s.ledger.compensate)
	post("/admin/books/unfreeze", page.PlatformAdmin, s.ledger.unfreeze)
	get("/admin/agents", page.PlatformAdmin, s.agents.agents)
	post("/admin/agents", page.PlatformAdmin, s.agents.setChannel)
	post("/admin/version-floors", page.PlatformAdmin, s.agents.setFloor)
	post("/admin/version-floors/remove", page.PlatformAdmin, s.agents.removeFloor)
}
