package web_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
)

func TestTwoFactorSignIn(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	const pass = "a long enough sentence"
	_, doc := b.post("/account/two-factor", url.Values{"password": {"not it at all"}})
	if !strings.Contains(doc.Find("#password-e").Text(), "wrong") {
		t.Error(doc.Find("main").Text())
	}
	_, doc = b.post("/account/two-factor", url.Values{"password": {pass}})
	secret := doc.Find("#totp-secret").Text()
	if secret == "" || !strings.HasPrefix(doc.Find("#confirm img").AttrOr("src", ""), "data:image/png;base64,") {
		t.Fatal(doc.Find("main").Text())
	}
	code := func(from time.Duration) string {
		c, err := totp.GenerateCode(secret, time.Now().Add(from))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, doc = b.post("/account/two-factor/confirm", url.Values{"code": {code(-30 * time.Second)}})
	recovery := strings.Fields(doc.Find("#recovery-codes").Text())
	if len(recovery) != 10 {
		t.Fatal(doc.Find("main").Text())
	}
	b.post("/signout", nil)
	_, doc = b.post("/signin", url.Values{"email": {"mira@northlight.example"}, "password": {pass}, "next": {"/billing"}})
	if doc.Find("#second-factor").Length() != 1 {
		t.Fatal(doc.Text())
	}
	if res, _ := b.get("/account"); res.Request.URL.Path != "/signin" {
		t.Error("signed in with the password alone")
	}
	_, doc = b.post("/signin/code", url.Values{"code": {"000000"}, "next": {"/billing"}})
	if !strings.Contains(doc.Find("#code-e").Text(), "wrong") {
		t.Error(doc.Find("main").Text())
	}
	res, _ := b.post("/signin/code", url.Values{"code": {code(0)}, "next": {"/billing"}})
	if res.Request.URL.Path != "/billing" {
		t.Errorf("after the code: %s", res.Request.URL)
	}
	_, doc = b.post("/account/two-factor/off", url.Values{"password": {pass}, "code": {recovery[0]}})
	if doc.Find("#off").Length() != 1 {
		t.Error(doc.Find("main").Text())
	}
}

// The page that logs a program in shows which program it is before it grants, and grants only what was chosen.
func TestDevicePage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, doc := b.post("/device", url.Values{"code": {"BBBB-BBBB"}})
	if !strings.Contains(doc.Find("#code-e").Text(), "not a code that waits") {
		t.Error(doc.Find("main").Text())
	}
	b.exec("INSERT INTO device_login (device_hash, user_code, machine, address, expires_at) " +
		"VALUES ('\\x00', 'BCDFGHJK', 'eve@<b>elsewhere', '203.0.113.7', now() + interval '5 minutes')")
	_, doc = b.post("/device", url.Values{"code": {"bcdf ghjk"}})
	text := doc.Find("#device").Text()
	for _, want := range []string{"eve@<b>elsewhere", "203.0.113.7", "not where you are", "Is this your own terminal?",
		"mira@northlight.example"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	_, doc = b.post("/device/answer", url.Values{"code": {"BCDFGHJK"}, "answer": {"grant"}, "scope": {"read"}})
	if !strings.Contains(doc.Find("#device").Text(), "logged in") {
		t.Error(doc.Find("main").Text())
	}
	var scopes []string
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT scopes FROM device_login").Scan(&scopes); err != nil ||
		len(scopes) != 1 || scopes[0] != "read" {
		t.Error(scopes, err)
	}
}
