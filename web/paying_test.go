package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A visitor saves a card on the sandbox's page and pays with it; its bank asks, and the credit is there on return.
func TestPayingWithASavedCard(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	res, page := b.post("/billing/cards", url.Values{})
	if res.StatusCode != http.StatusOK || !strings.Contains(page.Find("h1").Text(), "Sandbox") {
		t.Fatal(res.Status, page.Text())
	}
	pay := strings.TrimPrefix(res.Request.URL.String(), b.url)
	if _, page = b.post(pay,
		url.Values{"method": {"pm_card_visa_chargeDeclined"}}); page.Find("[role=alert]").Length() != 1 {
		t.Fatal("a bad card is not told of")
	}
	_, page = b.post(pay, url.Values{"method": {"pm_card_authenticationRequired"}})
	if c := page.Find("#cards tr"); c.Length() != 1 || !strings.Contains(c.Text(), "…3184") {
		t.Fatalf("%q", page.Find("#cards").Text())
	}
	res, page = b.post("/billing/topups", url.Values{"amount": {"12.00"}})
	if !strings.Contains(page.Find("h1").Text(), "bank") {
		t.Fatal(res.Request.URL, page.Find("h1").Text())
	}
	bank := strings.TrimPrefix(res.Request.URL.String(), b.url)
	if _, page = b.get("/billing?tab=payments"); page.Find("#payments a[href*='3ds']").Length() != 1 {
		t.Fatal("the page does not say that the bank asks")
	}
	_, page = b.post(bank, url.Values{"answer": {"yes"}})
	if got := strings.TrimSpace(page.Find("#available").Text()); !strings.HasPrefix(got, "12.00") {
		t.Fatalf("available is %q", got)
	}
	if page.Find("#payments a[href*='receipts']").Length() != 1 {
		t.Fatal("no receipt")
	}
	remove, ok := page.Find("#cards form[action$=remove]").Attr("action")
	if !ok {
		t.Fatal("the card cannot be removed")
	}
	if _, page = b.post(remove, url.Values{}); page.Find("#cards tr").Length() != 0 {
		t.Fatal("the card is still there")
	}
}

func TestAutoTopUpForm(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	form := url.Values{"enabled": {"yes"}, "threshold": {"20"}, "auto_amount": {"-5"}, "daily_cap": {"x"}}
	res, page := b.post("/billing/auto-topup", form)
	if res.StatusCode != http.StatusUnprocessableEntity || page.Find("#daily_cap-error").Length()+
		page.Find("#auto [aria-invalid=true]").Length() == 0 {
		t.Fatal(res.Status, page.Find("#auto").Text())
	}
	form.Set("auto_amount", "50.00")
	form.Set("daily_cap", "200")
	if _, page = b.post("/billing/auto-topup", form); !strings.Contains(page.Find("#auto .note").Text(), "on") {
		t.Fatal(page.Find("#auto").Text())
	}
	if v, _ := page.Find("#threshold").Attr("value"); v != "20.00" {
		t.Fatal(v)
	}
	if _, page = b.post("/billing/auto-topup",
		url.Values{"enabled": {"no"}}); !strings.Contains(page.Find("#auto .note").Text(), "off") {
		t.Fatal(page.Find("#auto").Text())
	}
}
