package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// A payment's receipt is linked from the billing page, names both parties as they were, and shows what went back.
func TestAReceiptForEachPayment(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	legal := url.Values{
		"legal_name":    {"Ada GmbH"},
		"legal_address": {"Unter den Linden 1\r\n10117 Berlin"},
		"legal_country": {"DE"},
	}
	b.post("/account/legal", legal)
	_, page := b.post("/billing/topups", url.Values{"amount": {"100"}})
	form := url.Values{}
	for _, name := range []string{"amount", "total", "card", "once"} {
		form.Set(name, page.Find("#confirm input[name="+name+"]").AttrOr("value", ""))
	}
	_, page = b.post("/billing/topups", form)
	path := page.Find(`#payments a[href^="/billing/payments/"]`).AttrOr("href", "")
	if path == "" {
		t.Fatal(page.Find("#payments").Text())
	}
	legal.Set("legal_name", "Another AG") // a receipt keeps the name it was made for
	b.post("/account/legal", legal)
	b.post("/billing/refunds", url.Values{"refund_amount": {"50.00"}})
	res, page := b.get(path)
	sound(t, path, page)
	if text := page.Find("#customer").Text(); res.StatusCode != http.StatusOK || !strings.Contains(text, "Ada GmbH") ||
		!strings.Contains(text, "10117 Berlin") || !strings.Contains(page.Find("#merchant").Text(), "Muster Test Ltd") {
		t.Error(res.Status, page.Find("main").Text())
	}
	for row, wants := range map[string][]string{
		"#payment":  {"100.00", "VAT 19 %, DE", "119.00"},
		".returned": {"Refunded", "50.00", "9.50", "59.50"},
		"#left":     {"59.50"},
	} {
		for _, want := range wants {
			if text := page.Find("#amounts " + row).Text(); !strings.Contains(text, want) {
				t.Errorf("%s has no %s: %s", row, want, text)
			}
		}
	}
	for _, none := range []string{"/billing/payments/x/receipt", "/billing/payments/" + id.New[id.TopUp]().String() +
		"/receipt"} {
		if res, _ := b.get(none); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", none, res.Status)
		}
	}
	// A notice that a payment arrived by itself leads to its receipt.
	topup := strings.Split(path, "/")[3]
	b.exec("INSERT INTO notice (id, org_id, dedupe_key, severity, title, object) SELECT $1, id, 'k', 'info', 'added by "+
		"auto top-up', $2 FROM org", id.New[id.Notice](), topup)
	if _, page = b.get("/notices"); page.Find(`.callout a[href="`+path+`"]`).Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	b.post("/signout", nil)
	if res, page := b.get(path); res.Request.URL.Path == path && page.Find("#receipt").Length() != 0 {
		t.Error("a stranger reads it")
	}
}
