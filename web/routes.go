package web

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/metrics"
)

// access says who may open a page. What a page shows and does is limited to the visitor's own org by the nouns.
type access int

const (
	anybody access = iota
	signedIn
	platformAdmin // for all others there is no such page
)

// Routes mounts every page. This is the whole list.
func (s *Web) Routes(r chi.Router) {
	// A form posted from another site is refused by what the browser says of its origin.
	guard := http.NewCrossOriginProtection()
	r.Group(func(r chi.Router) {
		r.Use(metrics.HTTP("web"), s.limitRequests, guard.Handler, limitForms)
		get := func(path string, rule access, h handler) { r.Get(path, s.handle(rule, h)) }
		post := func(path string, rule access, h handler) { r.Post(path, s.handle(rule, h)) }

		get("/", anybody, s.home)
		get("/signin", anybody, s.signInForm)
		post("/signin", anybody, s.signIn)
		get("/signup", anybody, s.signUpForm)
		post("/signup", anybody, s.signUp)
		get("/forgot-password", anybody, s.forgotForm)
		post("/forgot-password", anybody, s.forgot)
		get("/reset-password/{code}", anybody, s.resetForm)
		post("/reset-password", anybody, s.resetPassword)
		get("/verify-email/{code}", anybody, s.verifyForm)
		post("/verify-email", anybody, s.verifyEmail)
		post("/signout", signedIn, s.signOut)
		post("/signout/everywhere", signedIn, s.signOutEverywhere)
		post("/theme", anybody, s.setTheme)

		get("/offers", anybody, s.offers)
		get("/offers/filter", anybody, s.filter)
		post("/quotes", signedIn, s.makeQuote)
		post("/quotes/{id}/return", signedIn, s.returnQuote)

		get("/clusters", signedIn, s.clusters)
		post("/clusters", signedIn, s.rent)
		get("/clusters/{id}", signedIn, s.clusterPage)
		get("/clusters/{id}/live", signedIn, s.clusterLive)
		get("/clusters/{id}/logs", signedIn, s.followLogs)
		get("/clusters/{id}/logs.txt", signedIn, s.downloadLogs)
		get("/clusters/{id}/ports/{rank}/{port}", signedIn, s.openPort)
		post("/clusters/{id}/actions", signedIn, s.actOnCluster)

		get("/billing", signedIn, s.billing)
		get("/billing/statement", signedIn, s.statementPage)
		get("/billing/statement.csv", signedIn, s.statementCSV)
		get("/billing/invoices", signedIn, s.invoicePage)
		get("/billing/invoices/{month}", signedIn, s.invoicePage)
		get("/billing/payments/{id}/receipt", signedIn, s.receiptPage)
		get("/documents", signedIn, s.documents)
		get("/documents/{number}", signedIn, s.documentPage)
		post("/billing/topups", signedIn, s.topUp)
		post("/billing/auto-topup", signedIn, s.setAutoTopUp)
		post("/billing/cards", signedIn, s.addCard)
		post("/billing/cards/{id}/default", signedIn, s.defaultCard)
		post("/billing/cards/{id}/remove", signedIn, s.removeCard)
		post("/billing/budgets", signedIn, s.setBudget)
		post("/billing/budgets/{id}/remove", signedIn, s.removeBudget)
		post("/billing/refunds", signedIn, s.giveBack)
		post("/billing/promo", signedIn, s.redeem)
		post("/billing/postpaid/invoices/{id}/pay", signedIn, s.payInvoice)

		get("/admin", platformAdmin, s.admin)
		get("/admin/orgs", platformAdmin, s.orgs)
		get("/admin/orgs/{id}", platformAdmin, s.orgPage)
		post("/admin/orgs/{id}/fee", platformAdmin, s.setFee)
		post("/admin/orgs/{id}/pay", platformAdmin, s.payOrg)
		post("/admin/orgs/{id}/stop", platformAdmin, s.stopOrg)
		post("/admin/orgs/{id}/reverse", platformAdmin, s.reversePayout)
		post("/admin/orgs/{id}/unfreeze", platformAdmin, s.unfreezeOrg)
		post("/admin/orgs/{id}/reviews", platformAdmin, s.reviewOfOrg)
		post("/admin/orgs/{id}/write-off", platformAdmin, s.writeOff)
		post("/admin/orgs/{id}/bank-payment", platformAdmin, s.bankPayment)
		post("/admin/orgs/{id}/release-refund", platformAdmin, s.releaseRefund)
		post("/admin/orgs/{id}/forgive-disputes", platformAdmin, s.forgiveDisputes)
		get("/admin/payouts", platformAdmin, s.payoutRun)
		post("/admin/payouts", platformAdmin, s.runPayouts)
		post("/admin/sending", platformAdmin, s.setSending)
		get("/admin/reviews", platformAdmin, s.reviews)
		post("/admin/reviews", platformAdmin, s.decide)
		get("/admin/tax", platformAdmin, s.taxPage)
		post("/admin/tax", platformAdmin, s.remitTax)
		get("/admin/promo", platformAdmin, s.promoPage)
		post("/admin/promo", platformAdmin, s.createPromo)
		post("/admin/promo/{code}/disable", platformAdmin, s.disablePromo)
		get("/admin/gangs", platformAdmin, s.gangs)
		post("/admin/gangs/credits", platformAdmin, s.decideHeldCredit)
		get("/admin/documents", platformAdmin, s.allDocuments)
		get("/admin/documents/{number}", platformAdmin, s.anyDocumentPage)
		get("/admin/audit", platformAdmin, s.auditPage)
		get("/admin/books", platformAdmin, s.ledger)
		get("/admin/books/entries", platformAdmin, s.ledgerEntries)
		post("/admin/books/compensations", platformAdmin, s.compensate)
		post("/admin/books/unfreeze", platformAdmin, s.unfreeze)

		get("/admin/agents", platformAdmin, s.agents)
		post("/admin/agents", platformAdmin, s.setChannel)

		get("/hosts", signedIn, s.hosts)
		get("/hosts/statement", signedIn, s.earningsPage)
		get("/hosts/statement.csv", signedIn, s.earningsCSV)
		post("/hosts/enrollments", signedIn, s.enrollHost)
		get("/hosts/enrollments/{id}", signedIn, s.enrollmentProgress)
		get("/hosts/bond", signedIn, s.bondPage)
		get("/hosts/bond/clusters/{id}", signedIn, s.bondEvidence)
		post("/hosts/bond/deposit", signedIn, s.depositBond)
		post("/hosts/bond/withdraw", signedIn, s.withdrawBond)
		post("/hosts/bond/terms", signedIn, s.setBondTerms)
		get("/hosts/{id}", signedIn, s.hostPage)
		post("/hosts/{id}/liability", signedIn, s.limitHost)
		post("/hosts/{id}/terms", signedIn, s.setTerms)
		post("/hosts/{id}/actions", signedIn, s.actOnHost)
		post("/hosts/{id}/reclaim", signedIn, s.reclaimHost)
		post("/hosts/{id}/agent", signedIn, s.followChannel)
		post("/hosts/{id}/data", signedIn, s.setDataCap)

		get("/payouts", signedIn, s.payoutsPage)
		post("/payouts/account", signedIn, s.setUpPayouts)

		get("/purse", signedIn, s.walletBar)
		get("/notices", signedIn, s.noticesPage)
		post("/notices/{id}/read", signedIn, s.readNotice)

		get("/account", signedIn, s.accountPage)
		get("/account/trail", signedIn, s.ownAuditLog)
		post("/account/verification", signedIn, s.sendVerification)
		post("/account/legal", signedIn, s.setLegal)
		post("/account/legal/erase", signedIn, s.eraseLegal)
		post("/account/zone", signedIn, s.setZone)
		get("/account/export.json", signedIn, s.exportAccount)
		get("/account/delete", signedIn, s.deletionPage)
		post("/account/delete", signedIn, s.deleteAccount)
		post("/account/tokens", signedIn, s.createToken)
		post("/account/tokens/{id}/revoke", signedIn, s.revokeToken)
		post("/account/ssh-keys", signedIn, s.addKey)
		post("/account/password", signedIn, s.changePassword)
		post("/account/sessions/{id}/end", signedIn, s.endSession)
		post("/account/ssh-keys/{id}/remove", signedIn, s.removeKey)
	})
	r.Get("/static/*", s.assets.ServeHTTP)
	r.NotFound(s.handle(anybody, func(*visit) error { return fault.New(fault.NotFound, "there is no such page") }))
}

// limitRequests bounds what one address may ask for, as the API does. The numbers are per replica.
func (s *Web) limitRequests(next http.Handler) http.Handler {
	perMinute := s.AddressPerMinute
	if perMinute == 0 {
		perMinute = 3000
	}
	return httprate.LimitBy(perMinute, time.Minute,
		func(r *http.Request) (string, error) { return httprate.CanonicalizeIP(address(r)), nil },
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}),
		httprate.WithLimitHandler(func(w http.ResponseWriter, _ *http.Request) {
			s.secureHeaders(w)
			w.Header().Set("Retry-After", "10")
			http.Error(w, "Too many requests from your network: wait a moment and load the page again.",
				http.StatusTooManyRequests)
		}))(next)
}

// limitForms bounds what a form may send: all of ours are short.
func limitForms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 256<<10)
		next.ServeHTTP(w, r)
	})
}
