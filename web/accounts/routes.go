// Package accounts holds the pages of people and organisations: signing in, the account, members, activity.
package accounts

import (
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of people and organisations: signing in, the account, members. Make them with New.
type Pages struct {
	signIn    *signInPages
	members   *memberPages
	profile   *profilePages
	passwords *passwordPages
	emails    *emailPages
	legal     *legalPages
	factors   *factorPages
	passkeys  *passkeyPages
	devices   *devicePages
	deletion  *deletionPages
	activity  *activityPages
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	in := &signInPages{site}
	members := &memberPages{site, in}
	profile := &profilePages{site, members}
	return &Pages{
		signIn:    in,
		members:   members,
		profile:   profile,
		passwords: &passwordPages{site, profile},
		emails:    &emailPages{site, profile},
		legal:     &legalPages{site, profile},
		factors:   &factorPages{site},
		passkeys:  &passkeyPages{site, in},
		devices:   &devicePages{site},
		deletion:  &deletionPages{site},
		activity:  &activityPages{site},
	}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	get, post := m.Get, m.Post
	get("/signin", page.Anybody, s.signIn.signInForm)
	post("/signin", page.Anybody, s.signIn.signIn)
	post("/signin/code", page.Anybody, s.signIn.finishSignIn)
	get("/signup", page.Anybody, s.signIn.signUpForm)
	post("/signup", page.Anybody, s.signIn.signUp)
	get("/forgot-password", page.Anybody, s.passwords.forgotForm)
	post("/forgot-password", page.Anybody, s.passwords.forgot)
	get("/reset-password/{code}", page.Anybody, s.passwords.resetForm)
	post("/reset-password", page.Anybody, s.passwords.resetPassword)
	get("/verify-email/{code}", page.Anybody, s.emails.verifyForm)
	post("/verify-email", page.Anybody, s.emails.verifyEmail)
	post("/signout", page.SignedIn, s.signIn.signOut)
	post("/signout/everywhere", page.SignedIn, s.signIn.signOutEverywhere)
	post("/theme", page.Anybody, s.signIn.setTheme)
	get("/account", page.SignedIn, s.profile.accountPage)
	get("/account/trail", page.ReadOrg, s.activity.ownAuditLog)
	get("/account/passkeys", page.SignedIn, s.passkeys.passkeysPage)
	post("/account/passkeys/begin", page.SignedIn, s.passkeys.beginPasskey)
	post("/account/passkeys", page.SignedIn, s.passkeys.addPasskey)
	post("/account/passkeys/{id}/name", page.SignedIn, s.passkeys.renamePasskey)
	post("/account/passkeys/{id}/remove", page.SignedIn, s.passkeys.removePasskey)
	post("/signin/passkey/begin", page.Anybody, s.passkeys.beginPasskeySignIn)
	post("/signin/passkey", page.Anybody, s.passkeys.passkeySignIn)
	post("/account/email", page.SignedIn, s.emails.beginEmailChange)
	get("/change-email/{code}", page.SignedIn, s.emails.emailChangeForm)
	post("/change-email", page.SignedIn, s.emails.confirmEmailChange)
	get("/device", page.SignedIn, s.devices.devicePage)
	post("/device", page.SignedIn, s.devices.findDevice)
	post("/device/answer", page.ReadOrg, s.devices.answerDevice)
	get("/account/two-factor", page.SignedIn, s.factors.factorPage)
	post("/account/two-factor", page.SignedIn, s.factors.beginTOTP)
	post("/account/two-factor/confirm", page.SignedIn, s.factors.confirmTOTP)
	post("/account/two-factor/off", page.SignedIn, s.factors.removeTOTP)
	post("/account/two-factor/codes", page.SignedIn, s.factors.renewCodes)
	get("/account/members", page.ReadMembers, s.members.members)
	post("/account/members/{id}/role", page.WriteMembers, s.members.changeRole)
	post("/account/members/{id}/remove", page.WriteMembers, s.members.removeMember)
	post("/account/invitations", page.WriteMembers, s.members.invite)
	post("/account/invitations/{id}/withdraw", page.WriteMembers, s.members.withdrawInvitation)
	post("/account/orgs/{id}/switch", page.SignedIn, s.members.switchOrg)
	post("/account/leave", page.ReadOrg, s.members.leaveOrg)
	get("/invitations/{code}", page.Anybody, s.members.invitationForm)
	post("/invitations", page.SignedIn, s.members.answerInvitation)
	post("/account/verification", page.SignedIn, s.emails.sendVerification)
	post("/account/legal", page.WriteBilling, s.legal.setLegal)
	post("/account/legal/erase", page.WriteBilling, s.legal.eraseLegal)
	post("/account/zone", page.WriteBilling, s.legal.setZone)
	get("/account/export.json", page.ReadOrg, s.deletion.exportAccount)
	get("/account/delete", page.SignedIn, s.deletion.deletionPage)
	post("/account/delete", page.SignedIn, s.deletion.deleteAccount)
	post("/account/tokens", page.ReadOrg, s.profile.createToken)
	post("/account/tokens/{id}/revoke", page.ReadOrg, s.profile.revokeToken)
	post("/account/ssh-keys", page.WriteClusters, s.profile.addKey)
	post("/account/password", page.SignedIn, s.passwords.changePassword)
	post("/account/sessions/{id}/end", page.SignedIn, s.passwords.endSession)
	post("/account/ssh-keys/{id}/remove", page.WriteClusters, s.profile.removeKey)
}
