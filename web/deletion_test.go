package web_test

import (
	"net/http"
	"net/url"
	"testing"
)

// The account page leads to the deletion, which wants the password and the e-mail address, and ends the session.
func TestAnAccountIsDeleted(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, page := b.get("/account")
	if page.Find(`a[href="/account/delete"]`).Length() != 1 {
		t.Fatal("no way to it")
	}
	_, page = b.get("/account/delete")
	sound(t, "/account/delete", page)
	if res, page := b.post("/account/delete", url.Values{
		"confirm":  {"x"},
		"password": {"wrong password"},
	}); res.StatusCode != http.StatusUnprocessableEntity && res.StatusCode != http.StatusBadRequest {
		t.Error(res.Status, page.Find("main").Text())
	}
	if _, page := b.get("/account"); page.Find("#data").Length() != 1 {
		t.Error("the account is gone")
	}
}
