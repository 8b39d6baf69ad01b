package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Where tax is charged, the payer sees net, tax and total before anything is paid.
func TestTheTotalIsConfirmedBeforeItIsPaid(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	available := func() string {
		t.Helper()
		_, page := b.get("/billing")
		return strings.TrimSpace(page.Find("#available").Text())
	}
	legal := url.Values{"legal_name": {"Ada"}, "legal_address": {"1 Street"}, "legal_country": {"DE"}}
	b.post("/account/legal", legal)
	if _, page := b.get("/billing"); !strings.Contains(page.Find("#taxnote").Text(), "VAT 19 %") {
		t.Errorf("%q", page.Find("#topup").Text())
	}
	_, page := b.post("/billing/topups", url.Values{"amount": {"12.5"}})
	for _, want := range []string{"12.50", "2.38", "14.88", "VAT 19 %"} {
		if !strings.Contains(page.Find("#confirm").Text(), want) {
			t.Fatalf("%s is not shown: %q", want, page.Find("#topup").Text())
		}
	}
	if got := available(); !strings.HasPrefix(got, "0.00") {
		t.Fatalf("paid before it was confirmed: %s", got)
	}
	form := url.Values{}
	for _, name := range []string{"amount", "total", "card", "once"} {
		form.Set(name, page.Find("#confirm input[name="+name+"]").AttrOr("value", ""))
	}
	// Meanwhile the buyer has moved: they are asked again, with what it is now.
	legal.Set("legal_country", "HU")
	b.post("/account/legal", legal)
	res, page := b.post("/billing/topups", form)
	if res.StatusCode != http.StatusOK || !strings.Contains(page.Find("#confirm").Text(), "15.88") ||
		!strings.Contains(page.Find("#topup .err").Text(), "15.88") {
		t.Fatal(res.Status, page.Find("#topup").Text())
	}
	for _, name := range []string{"total", "once"} {
		form.Set(name, page.Find("#confirm input[name="+name+"]").AttrOr("value", ""))
	}
	for range 2 { // an impatient hand
		_, page = b.post("/billing/topups", form)
	}
	if got := strings.TrimSpace(page.Find("#available").Text()); !strings.HasPrefix(got, "12.50") {
		t.Fatalf("available is %q", got)
	}
	if got := page.Find("#payments tbody tr"); got.Length() != 1 || !strings.Contains(got.Text(), "VAT 27 %: 15.88") {
		t.Errorf("%q", got.Text())
	}
	if _, page = b.post("/billing/refunds",
		url.Values{"refund_amount": {"12.50"}}); !strings.Contains(page.Find("#refunds tbody").Text(), "with tax 15.88") {
		t.Errorf("%q", page.Find("#refunds").Text())
	}
	// Both stand on the month's invoice; a month may end between the two.
	if _, page = b.get("/billing/invoices"); page.Find("#payments tbody tr").Length() == 2 {
		for _, want := range []string{"Credit paid in", "VAT 27 %, HU", "15.88", "Credit refunded", "T-"} {
			if !strings.Contains(page.Find("#payments").Text(), want) {
				t.Errorf("%q is not on the invoice: %s", want, page.Find("#payments").Text())
			}
		}
		if got := strings.TrimSpace(page.Find("#taxtotal").Text()); got != "0.00" {
			t.Errorf("the tax is %q", got)
		}
	} else if time.Now().UTC().Day() > 2 {
		t.Errorf("%s", page.Find("main").Text())
	}
	// A business elsewhere pays no tax and reads why.
	legal.Set("legal_vat", "HU12892312")
	b.post("/account/legal", legal)
	if _, page = b.get("/billing"); !strings.Contains(page.Find("#taxnote").Text(), "Reverse charge") {
		t.Errorf("%q", page.Find("#topup").Text())
	}
	b.post("/billing/topups", url.Values{"amount": {"3"}})
	if got := available(); !strings.HasPrefix(got, "3.00") {
		t.Errorf("available is %s", got)
	}
}
