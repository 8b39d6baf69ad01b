// Package accounts holds the pages of people and organisations: signing in, the account, members, activity.
package accounts

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of people and organisations: signing in, the account, members. Make them with New.
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
	get("/signin", page.Anybody, s.signInForm)
	post("/signin", page.Anybody, s.signIn)
	post("/signin/code", page.Anybody, s.finishSignIn)
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
	get("/account", page.SignedIn, s.accountPage)
	get("/account/trail", page.ReadOrg, s.ownAuditLog)
	get("/account/passkeys", page.SignedIn, s.passkeysPage)
	post("/account/passkeys/begin", page.SignedIn, s.beginPasskey)
	post("/account/passkeys", page.SignedIn, s.addPasskey)
	post("/account/passkeys/{id}/name", page.SignedIn, s.renamePasskey)
	post("/account/passkeys/{id}/remove", page.SignedIn, s.removePasskey)
	post("/signin/passkey/begin", page.Anybody, s.beginPasskeySignIn)
	post("/signin/passkey", page.Anybody, s.passkeySignIn)
	post("/account/email", page.SignedIn, s.beginEmailChange)
	get("/change-email/{code}", page.SignedIn, s.emailChangeForm)
	post("/change-email", page.SignedIn, s.confirmEmailChange)
	get("/device", page.SignedIn, s.devicePage)
	post("/device", page.SignedIn, s.findDevice)
	post("/device/answer", page.ReadOrg, s.answerDevice)
	get("/account/two-factor", page.SignedIn, s.factorPage)
	post("/account/two-factor", page.SignedIn, s.beginTOTP)
	post("/account/two-factor/confirm", page.SignedIn, s.confirmTOTP)
	post("/account/two-factor/off", page.SignedIn, s.removeTOTP)
	post("/account/two-factor/codes", page.SignedIn, s.renewCodes)
	get("/account/members", page.ReadMembers, s.members)
	post("/account/members/{id}/role", page.WriteMembers, s.changeRole)
	post("/account/members/{id}/remove", page.WriteMembers, s.removeMember)
	post("/account/invitations", page.WriteMembers, s.invite)
	post("/account/invitations/{id}/withdraw", page.WriteMembers, s.withdrawInvitation)
	post("/account/orgs/{id}/switch", page.SignedIn, s.switchOrg)
	post("/account/leave", page.ReadOrg, s.leaveOrg)
	get("/invitations/{code}", page.Anybody, s.invitationForm)
	post("/invitations", page.SignedIn, s.answerInvitation)
	post("/account/verification", page.SignedIn, s.sendVerification)
	post("/account/legal", page.WriteBilling, s.setLegal)
	post("/account/legal/erase", page.WriteBilling, s.eraseLegal)
	post("/account/zone", page.WriteBilling, s.setZone)
	get("/account/export.json", page.ReadOrg, s.exportAccount)
	get("/account/delete", page.SignedIn, s.deletionPage)
	post("/account/delete", page.SignedIn, s.deleteAccount)
	post("/account/tokens", page.ReadOrg, s.createToken)
	post("/account/tokens/{id}/revoke", page.ReadOrg, s.revokeToken)
	post("/account/ssh-keys", page.WriteClusters, s.addKey)
	post("/account/password", page.SignedIn, s.changePassword)
	post("/account/sessions/{id}/end", page.SignedIn, s.endSession)
	post("/account/ssh-keys/{id}/remove", page.WriteClusters, s.removeKey)
}
