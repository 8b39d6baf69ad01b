package web_test

import (
	"net/http"
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
	if res, _ := b.post("/reset-password", url.Values{
		"code":         {strings.Repeat("A", 43)},
		"new_password": {"another fine password"},
	}); res.StatusCode != http.StatusNotFound {
		t.Error(res.Status)
	}
	if res, page := b.post("/forgot-password",
		url.Values{"email": {"ada@example.com"}}); res.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(page.Text(), "sends no mail") {
		t.Error(res.Status)
	}
}
