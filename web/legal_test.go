package web_test

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// A country is chosen by its name, and documents name it.
func TestLegal_CountryByName(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, doc := b.get("/account")
	if got := doc.Find(`#legal_country option[value="DE"]`).Text(); got != "Germany" {
		t.Errorf("DE is %q", got)
	}
	_, doc = b.post("/account/legal", url.Values{"legal_name": {"Northlight GmbH"}, "legal_address": {"Street 1\nBerlin"},
		"legal_country": {""}})
	if doc.Find("#legal_country-e").Length() != 1 {
		t.Errorf("no country is chosen: %s", doc.Find("#legal").Text())
	}
	b.post("/account/legal", url.Values{"legal_name": {"Northlight GmbH"}, "legal_address": {"Street 1\nBerlin"},
		"legal_country": {"DE"}})
	_, doc = b.get("/account")
	if got := doc.Find("#legal_country option[selected]").Text(); got != "Germany" {
		t.Errorf("%q is chosen", got)
	}
	_, doc = b.get("/billing/invoices/" + time.Now().UTC().Format("2006-01"))
	if text := doc.Find("#customer").Text(); !strings.Contains(text, "Germany") {
		t.Errorf("the customer is %s", text)
	}
}
