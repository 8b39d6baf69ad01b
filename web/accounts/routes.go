// Package accounts holds the pages of people and organisations: signing in, the account, its activity, notices.
package accounts

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of people and organisations: signing in, the account, notices. Make them with New.
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
	get("/", page.Anybody, s.home)
	get("/signin", page.Anybody, s.signInForm)
	post("/signin", page.Anybody, s.signIn)
	get("/signup", page.Anybody, s.signUpForm)
	post("/signup", page.Anybody, s.signUp)
	get("/forgot-password", page.Anybody, s.forgotForm)
	post("/forgot-password", page.Anybody, s.forgot)
	get("/reset-password/{code}", page.Anybody, s.resetForm)
	post("/reset-password", page.Anybody, s.resetPassword)
	get("/verify-email/{code}", page.Anybody, s.verifyForm)
	post("/verify-email", page.Anybody, s.verifyEmail)
	post("/signout", page.SignedIn, s.signOut)
	post("/signout/everywhere", page.SignedIn, s.signOutEverywhere)
	post("/theme", page.Anybody, s.setTheme)
	get("/notices", page.SignedIn, s.noticesPage)
	post("/notices/{id}/read", page.SignedIn, s.readNotice)
	get("/account", page.SignedIn, s.accountPage)
	get("/account/trail", page.SignedIn, s.ownAuditLog)
	post("/account/verification", page.SignedIn, s.sendVerification)
	post("/account/legal", page.SignedIn, s.setLegal)
	post("/account/legal/erase", page.SignedIn, s.eraseLegal)
	post("/account/zone", page.SignedIn, s.setZone)
	get("/account/export.json", page.SignedIn, s.exportAccount)
	get("/account/delete", page.SignedIn, s.deletionPage)
	post("/account/delete", page.SignedIn, s.deleteAccount)
	post("/account/tokens", page.SignedIn, s.createToken)
	post("/account/tokens/{id}/revoke", page.SignedIn, s.revokeToken)
	post("/account/ssh-keys", page.SignedIn, s.addKey)
	post("/account/password", page.SignedIn, s.changePassword)
	post("/account/sessions/{id}/end", page.SignedIn, s.endSession)
	post("/account/ssh-keys/{id}/remove", page.SignedIn, s.removeKey)
}
