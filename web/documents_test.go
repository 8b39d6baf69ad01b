package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// withDocuments signs up an organisation with a receipt, a credit note and a self-billing document.
func (b *browser) withDocuments() {
	b.t.Helper()
	b.signUp()
	b.post("/account/legal", url.Values{
		"legal_name":    {"Northlight GmbH"},
		"legal_address": {"Unter den Linden 1\r\n10117 Berlin"},
		"legal_country": {"DE"},
	})
	b.post("/account/zone", url.Values{"zone": {"Pacific/Kiritimati"}})
	_, page := b.post("/billing/topups", url.Values{"amount": {"100"}})
	form := url.Values{}
	for _, name := range []string{"amount", "total", "card", "once"} {
		form.Set(name, page.Find("#confirm input[name="+name+"]").AttrOr("value", ""))
	}
	b.post("/billing/topups", form)
	b.post("/billing/refunds", url.Values{"refund_amount": {"50.00"}})
	org := b.org()
	bill := payout.SelfBill{
		Month: "2026-10",
		From:  "2026-10-01",
		To:    "2026-10-31",
		Supplier: account.Party{
			Name:    "Northlight GmbH",
			Address: []string{"Unter den Linden 1", "10117 Berlin"},
			Country: "DE",
		},
		Recipient: account.Party{Name: "Muster Test Ltd", Address: []string{"1 Test Street"}},
		Billed:    1176_470588235,
		Fee:       176_470588235,
		Earned:    1020 * money.Unit,
		Returned:  20 * money.Unit,
		Total:     1000 * money.Unit,
		Currency:  "USD",
		Note:      "No VAT is shown: the supplier has given no VAT id.",
		Wording:   "Self-billing: the recipient issues this document in the name and on behalf of the supplier.",
	}
	if err := b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return document.Issue(ctx, tx, document.Draft{
			Series:  document.SelfBilling,
			Org:     org,
			Key:     "self_billing:" + org.UUID().String() + ":2026-10:USD",
			Content: bill,
		})
	}); err != nil {
		b.t.Fatal(err)
	}
}

// number is that of the first document of a series.
func (b *browser) number(letter string) string {
	return letter + "-" + time.Now().UTC().Format("2006") + "-000001"
}

// Receipts, credit notes and self-billing invoices are listed with their numbers, and each is shown as it is printed:
// with both parties, its sums and its date in the organisation's time zone, and without the platform's navigation.
func TestDocumentsOnThePage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.withDocuments()
	r, c, s := b.number("R"), b.number("C"), b.number("S")
	_, page := b.get("/documents")
	sound(t, "/documents", page)
	if rows := page.Find("#documents tbody tr"); rows.Length() != 3 || !strings.Contains(rows.Eq(0).Text(), s) ||
		!strings.Contains(rows.Eq(1).Text(), c) || !strings.Contains(rows.Eq(1).Text(), "of "+r) ||
		!strings.Contains(rows.Eq(2).Text(), "119.00 USD") {
		t.Error(page.Find("main").Text())
	}
	if _, page := b.get("/documents?series=credit_note&year=" + c[2:6]); page.Find("#documents tbody tr").Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	if _, page := b.get("/documents?year=2020"); page.Find(".empty").Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	for _, none := range []string{"/documents?series=x", "/documents?year=x", "/documents?after=x", "/documents/x",
		"/documents/R-2026-1", "/documents/" + strings.Replace(r, "000001", "000009", 1)} {
		if res, _ := b.get(none); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", none, res.Status)
		}
	}
	for number, wants := range map[string][]string{
		r: {"Receipt", "Northlight GmbH", "10117 Berlin", "Muster Test Ltd", "100.00", "VAT 19 %, DE", "19.00", "119.00",
			"Sandbox"},
		c: {"Credit note", "Refund of a payment, receipt " + r, "50.00", "9.50", "59.50"},
		s: {"Self-billing invoice", "1 October 2026", "31 October 2026", "176.4706", "1,000.0000",
			"in the name and on behalf of the supplier", "No VAT is shown"},
	} {
		_, page := b.get("/documents/" + number)
		sound(t, number, page)
		text := strings.Join(strings.Fields(page.Find("main").Text()), " ")
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q: %s", number, want, text)
			}
		}
		if page.Find(".bezel, .foot").Length() != 0 || page.Find("main.paper").Length() != 1 ||
			page.Find("#number").Text() != number {
			t.Errorf("%s is not a sheet of its own", number)
		}
	}
	_, page = b.get("/documents/" + r)
	if page.Find(`.paperbar a[href="/documents/`+c+`"]`).Length() != 1 {
		t.Error("the receipt does not name its credit note", page.Find(".paperbar").Text())
	}
	// The date is that of the zone when it was issued: 14 h ahead of UTC, whatever the zone is now.
	b.post("/account/zone", url.Values{"zone": {"UTC"}})
	zone, err := time.LoadLocation("Pacific/Kiritimati")
	if err != nil {
		t.Fatal(err)
	}
	var issued time.Time
	if err := b.db.Pool.QueryRow(t.Context(),
		"SELECT issued_at FROM document WHERE series = 'receipt'").Scan(&issued); err != nil {
		t.Fatal(err)
	}
	if _, page := b.get("/documents/" + r); !strings.Contains(page.Find("#date").Text(),
		issued.In(zone).Format("2 January 2006")) || !strings.Contains(page.Find("#date").Text(), "Pacific/Kiritimati") {
		t.Error(page.Find("#date").Text())
	}
	b.makeAdmin()
	if _, page := b.get("/admin/documents"); page.Find("#documents tbody tr").Length() != 3 ||
		!strings.Contains(page.Find("#documents").Text(), "northlight") {
		t.Error(page.Find("main").Text())
	}
	if res, _ := b.get("/admin/documents?q=" + strings.ToLower(c)); res.Request.URL.Path != "/admin/documents/"+c {
		t.Error(res.Request.URL)
	}
	if _, page := b.get("/admin/documents?q=" + b.org().String()); page.Find("#documents tbody tr").Length() != 3 {
		t.Error(page.Find("main").Text())
	}
	if _, page := b.get("/admin/documents?q=x"); page.Find("#q-e").Length() != 1 {
		t.Error(page.Find("main").Text())
	}
	// Another organisation sees none of them.
	b.post("/signout", nil)
	b.post("/signup", url.Values{"email": {"eve@example.com"}, "password": {"a long enough sentence"}, "name": {"eve"}})
	if _, page := b.get("/documents"); page.Find("#documents").Length() != 0 {
		t.Error(page.Find("main").Text())
	}
	for _, path := range []string{"/documents/" + r, "/admin/documents", "/admin/documents/" + r} {
		if res, _ := b.get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}
