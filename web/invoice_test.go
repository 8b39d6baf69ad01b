package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestLegalDetailsStandOnTheInvoice(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, page := b.get("/billing"); page.Find(`a[href="/billing/invoices"]`).Length() != 1 {
		t.Error("the billing page leads to no invoice")
	}
	_, page := b.get("/billing/invoices")
	if page.Find(`#invoice a[href="/account#legal"]`).Length() != 1 || !strings.Contains(page.Find("#merchant").Text(),
		"Muster Test Ltd") {
		t.Error(page.Find("main").Text())
	}
	form := url.Values{
		"legal_name":    {"Ada <GmbH>"},
		"legal_address": {"Unter den Linden 1\r\n10117 Berlin"},
		"legal_country": {"DE"},
		"legal_vat":     {"DE12"},
	}
	res, page := b.post("/account/legal", form)
	if res.StatusCode != http.StatusUnprocessableEntity || page.Find("#legal_vat[aria-invalid]").Length() != 1 ||
		!strings.Contains(page.Find("#legal_vat-e").Text(), "DE123456788") {
		t.Error(res.Status, page.Find("#legal").Text())
	}
	if got := page.Find("#legal_address").Text(); !strings.Contains(got, "10117 Berlin") {
		t.Errorf("what was typed is lost: %q", got)
	}
	form.Set("legal_vat", "DE 123456788")
	if _, page = b.post("/account/legal", form); page.Find("#legal_vat").AttrOr("value", "") != "DE123456788" {
		t.Error(page.Find("#legal").Text())
	}
	_, page = b.get("/billing/invoices")
	customer := page.Find("#customer").Text()
	for _, want := range []string{"Ada <GmbH>", "Unter den Linden 1", "10117 Berlin", "DE123456788"} {
		if !strings.Contains(customer, want) {
			t.Errorf("the invoice lacks %q: %s", want, customer)
		}
	}
	if !strings.Contains(page.Find("#tax").Text(), "exclude tax") || !strings.Contains(page.Find("h1").Text(),
		"Monthly statement M-") {
		t.Error(page.Find("main").Text())
	}
	month, ok := page.Find("a[rel=prev]").Attr("href")
	if !ok {
		t.Fatal("no way to the month before")
	}
	if res, page = b.get(month); res.StatusCode != http.StatusOK || page.Find("a[rel=next]").Length() != 1 {
		t.Error(res.Status, month)
	}
	if res, _ = b.get("/billing/invoices/2999-01"); res.StatusCode != http.StatusNotFound {
		t.Error(res.Status)
	}
	if _, page = b.post("/account/legal/erase", nil); page.Find("#legal_name").AttrOr("value", "") != "" {
		t.Error(page.Find("#legal").Text())
	}
}
