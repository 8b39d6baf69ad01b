package web_test

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
)

// Chromium with a virtual authenticator adds a passkey and signs in with it, without the password. One that was removed
// no longer signs in.
func TestPasskeyInABrowser(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp() // with another browser
	ctx, do := chromium(t)
	if _, err := chromedp.Call(ctx, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Ctap2version: webauthn.Ctap2versionCtap21, Transport: "internal",
			HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		},
	}); err != nil {
		t.Fatal(err)
	}
	site, css := localhost(b.url), func(s string) chromedp.CSS { return chromedp.CSS(s) }
	do("sign in", chromedp.Navigate(site+"/signin?next=/account/passkeys"), chromedp.WaitReady(css("#password")),
		chromedp.SetValue(css("#email"), "mira@northlight.example"),
		chromedp.SetValue(css("#password"), "a long enough sentence"), chromedp.Click(css(`form[action="/signin"] button`)),
		chromedp.WaitReady(css("#passkeys")))
	do("add a passkey", chromedp.SetValue(css("#name"), "laptop"),
		chromedp.SetValue(css("#password"), "a long enough sentence"),
		chromedp.Click(css("form[data-passkey] button")), chromedp.WaitReady(css(`#passkeys input[value="laptop"]`)))
	do("rename it", chromedp.SetValue(css(`#passkeys input[value="laptop"]`), "phone"),
		chromedp.Click(css(`form[action$="/name"] button`)), chromedp.WaitReady(css(`#passkeys input[value="phone"]`)))
	do("sign out", chromedp.Navigate(site+"/account"), chromedp.WaitReady(css(`form[action="/signout"]`)),
		chromedp.Click(css(`form[action="/signout"] button`)), chromedp.WaitReady(css(`form[data-passkey="get"]`)))
	do("sign in with the passkey", chromedp.Navigate(site+"/signin?next=/account/passkeys"),
		chromedp.WaitReady(css(`form[data-passkey="get"]`)), chromedp.Click(css(`form[data-passkey="get"] button`)),
		chromedp.WaitReady(css("#passkeys")))
	do("remove it", chromedp.Click(css(`form[action$="/remove"] button`)),
		chromedp.WaitNotPresent(css(`#passkeys input[value="phone"]`)))
	do("sign out again", chromedp.Navigate(site+"/account"), chromedp.WaitReady(css(`form[action="/signout"]`)),
		chromedp.Click(css(`form[action="/signout"] button`)), chromedp.WaitReady(css(`form[data-passkey="get"]`)))
	do("sign in with the removed passkey", chromedp.Click(css(`form[data-passkey="get"] button`)),
		chromedp.WaitReady(css(`.callout`)))
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil || !strings.Contains(text, "was not accepted") {
		t.Errorf("%v %s", err, text)
	}
}
