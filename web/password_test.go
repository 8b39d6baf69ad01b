package web_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
)

func TestPasswordPages(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, page := b.get("/account"); page.Find(`#password form[action="/account/password"]`).Length() != 1 ||
		page.Find("#sessions tr").Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	res, page := b.post("/account/password", url.Values{
		"old_password": {"wrong"},
		"new_password": {"another fine password"},
	})
	if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page.Find("#old_password-e").Text(),
		"wrong") {
		t.Error(res.Status, page.Find("#password").Text())
	}
	if _, page := b.get("/reset-password/" + strings.Repeat("A",
		43)); page.Find(`form[action="/reset-password"] input[name=code]`).AttrOr("value", "") == "" {
		t.Error(page.Find("main").Text())
	}
	if res, page := b.post("/reset-password", url.Values{
		"code":         {strings.Repeat("A", 43)},
		"new_password": {"another fine password"},
	}); res.StatusCode != http.StatusNotFound || !strings.Contains(page.Text(), "ask for a new one") {
		t.Error(res.Status, page.Find("main").Text())
	}
	if res, page := b.post("/forgot-password",
		url.Values{"email": {"ada@example.com"}}); res.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(page.Text(), "sends no mail") {
		t.Error(res.Status)
	}
	res, page = b.post("/account/password", url.Values{
		"old_password": {"a long enough sentence"},
		"new_password": {"another fine password"},
	})
	if res.StatusCode != http.StatusOK || res.Request.URL.Path != "/account" {
		t.Error(res.Status, res.Request.URL, page.Find("#password").Text())
	}

	// The user signs in elsewhere, and ends that session from here.
	here := b.http
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := &http.Client{Jar: jar}
	b.http = elsewhere
	b.post("/signin", url.Values{"email": {"mira@northlight.example"}, "password": {"another fine password"}})
	if res, _ := b.get("/account"); res.Request.URL.Path != "/account" {
		t.Fatal("the new password does not sign in:", res.Request.URL)
	}
	b.http = here
	_, page = b.get("/account")
	end := page.Find(`#sessions form[action$="/end"]`)
	if page.Find("#sessions tbody tr").Length() != 2 || end.Length() != 1 {
		t.Fatal(page.Find("#sessions").Text())
	}
	if _, page = b.post(end.AttrOr("action", ""), nil); page.Find("#sessions tbody tr").Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	b.http = elsewhere
	if res, _ := b.get("/account"); res.Request.URL.Path != "/signin" {
		t.Error("the session that was ended still counts:", res.Request.URL)
	}
}
