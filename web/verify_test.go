package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestAMailedLinkIsConfirmedByAClick(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, page := b.get("/account"); !strings.Contains(page.Find("#email").Text(), "Not verified") ||
		page.Find(`#email form[action="/account/verification"]`).Length() != 1 {
		t.Error(page.Find("#email").Text())
	}
	if res, page := b.post("/account/verification", nil); res.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(page.Find("#email-e").Text(), "sends no mail") {
		t.Error(res.Status, page.Find("#email").Text())
	}
	code := strings.Repeat("A", 43)
	if _, err := b.db.Pool.Exec(t.Context(), `INSERT INTO email_verification (secret_hash, user_id, address, expires_at)
		SELECT sha256(convert_to($1, 'UTF8')), id, email, clock_timestamp() + interval '1 hour' FROM
		app_user`, code); err != nil {
		t.Fatal(err)
	}
	for range 2 { // opening is not confirming
		if _, page := b.get("/verify-email/" +
			code); page.Find(`form[action="/verify-email"] input[name=code]`).AttrOr("value", "") != code {
			t.Error(page.Find("main").Text())
		}
	}
	if _, page := b.get("/account"); !strings.Contains(page.Find("#email").Text(), "Not verified") {
		t.Error("opening the link was enough")
	}
	stranger := *b // another browser
	stranger.http = &http.Client{}
	for _, password := range []string{"", "not the password"} { // another browser needs the account's password
		_, page := stranger.post("/verify-email", url.Values{"code": {code}, "password": {password}})
		if page.Find("#password-e").Text() == "" || page.Find(`#verify a[href="/forgot-password"]`).Length() != 1 {
			t.Error(page.Find("main").Text())
		}
	}
	if _, page := b.post("/verify-email", url.Values{"code": {code}}); !strings.Contains(page.Find("#verify").Text(),
		"is confirmed") {
		t.Error(page.Find("main").Text())
	}
	if _, page := b.get("/account"); strings.Contains(page.Find("#email").Text(), "Not verified") ||
		page.Find(`#email form[action="/account/verification"]`).Length() != 0 {
		t.Error(page.Find("#email").Text())
	}
	if res, _ := b.post("/verify-email", url.Values{"code": {code}}); res.StatusCode != http.StatusNotFound {
		t.Error(res.Status)
	}
}
