// Package billing holds the pages about what a renter pays: the wallet, top-ups, cards, budgets, statements, documents.
package billing

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages about what a renter pays. Make them with New.
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
	get("/billing", page.SignedIn, s.billing)
	get("/billing/statement", page.SignedIn, s.statementPage)
	get("/billing/statement.csv", page.SignedIn, s.statementCSV)
	get("/billing/invoices", page.SignedIn, s.invoicePage)
	get("/billing/invoices/{month}", page.SignedIn, s.invoicePage)
	get("/billing/payments/{id}/receipt", page.SignedIn, s.receiptPage)
	get("/documents", page.SignedIn, s.documents)
	get("/documents/{number}", page.SignedIn, s.documentPage)
	post("/billing/topups", page.SignedIn, s.topUp)
	post("/billing/auto-topup", page.SignedIn, s.setAutoTopUp)
	post("/billing/cards", page.SignedIn, s.addCard)
	post("/billing/cards/{id}/default", page.SignedIn, s.defaultCard)
	post("/billing/cards/{id}/remove", page.SignedIn, s.removeCard)
	post("/billing/budgets", page.SignedIn, s.setBudget)
	post("/billing/budgets/{id}/remove", page.SignedIn, s.removeBudget)
	post("/billing/refunds", page.SignedIn, s.giveBack)
	post("/billing/promo", page.SignedIn, s.redeem)
	post("/billing/postpaid/invoices/{id}/pay", page.SignedIn, s.payInvoice)
	get("/purse", page.SignedIn, s.walletBar)
}
