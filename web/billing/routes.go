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
	get("/billing", page.ReadBilling, s.billing)
	get("/billing/statement", page.ReadBilling, s.statementPage)
	get("/billing/statement.csv", page.ReadBilling, s.statementCSV)
	get("/billing/invoices", page.ReadBilling, s.invoicePage)
	get("/billing/invoices/{month}", page.ReadBilling, s.invoicePage)
	get("/billing/payments/{id}/receipt", page.ReadBilling, s.receiptPage)
	get("/documents", page.ReadBilling, s.documents)
	get("/documents/{number}", page.ReadBilling, s.documentPage)
	post("/billing/topups", page.WriteBilling, s.topUp)
	post("/billing/auto-topup", page.WriteBilling, s.setAutoTopUp)
	post("/billing/cards", page.WriteBilling, s.addCard)
	post("/billing/cards/{id}/default", page.WriteBilling, s.defaultCard)
	post("/billing/cards/{id}/remove", page.WriteBilling, s.removeCard)
	post("/billing/budgets", page.WriteBilling, s.setBudget)
	post("/billing/budgets/{id}/remove", page.WriteBilling, s.removeBudget)
	post("/billing/refunds", page.WriteBilling, s.giveBack)
	post("/billing/promo", page.WriteBilling, s.redeem)
	post("/billing/postpaid/invoices/{id}/pay", page.WriteBilling, s.payInvoice)
	get("/wallet-bar", page.ReadBilling, s.walletBar)
}
