package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
)

// A review is decided once, with a reason, from its queue or from the operator's page.
func TestAdminReviews_Decide(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	renter := b.earn("a", 30*money.Unit, true)
	_, doc := b.get("/admin/reviews")
	sound(t, "/admin/reviews", doc)
	entry := doc.Find("#reviews .entry")
	if text := entry.Text(); entry.Length() != 1 || !strings.Contains(text, "30.00 USD") ||
		!strings.Contains(text, "one person in both") || !strings.Contains(text, "Renter a") {
		t.Fatal(text)
	}
	form := url.Values{
		"review":   {entry.AttrOr("id", "")},
		"decision": {"refuse"},
		"once":     {entry.Find("input[name=once]").AttrOr("value", "")},
	}
	if res, doc := b.post("/admin/reviews", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#reviews .err").Length() != 1 {
		t.Fatalf("without a reason: %s %s", res.Status, doc.Find("main").Text())
	}
	form.Set("reason", "a stolen card")
	for range 2 { // the same form, sent twice
		if res, doc := b.post("/admin/reviews", form); res.StatusCode != http.StatusOK ||
			doc.Find("#reviews .entry").Length() != 0 || !strings.Contains(doc.Find(".callout").Text(), "Refused") {
			t.Fatalf("%s %s", res.Status, doc.Find("main").Text())
		}
	}
	form.Del("once")
	if res, doc := b.post("/admin/reviews", form); res.StatusCode != http.StatusConflict {
		t.Errorf("decided twice: %s %s", res.Status, doc.Find("main").Text())
	}
	if _, doc := b.get("/admin/reviews?all=1"); !strings.Contains(doc.Find("#reviews").Text(), "30.00 refused") {
		t.Error(doc.Find("main").Text())
	}
	page := "/admin/orgs/" + renter.String()
	if _, doc := b.get(page); !strings.Contains(doc.Find("#reviews").Text(), "a stolen card") {
		t.Error(doc.Find("main").Text())
	}
	if res, _ := b.post(page+"/reviews", url.Values{
		"review":   {"x"},
		"decision": {"release"},
		"reason":   {"x"},
	}); res.StatusCode != http.StatusConflict {
		t.Error(res.Status)
	}
}

// A run pays everybody who can be paid, once.
func TestAdminPayouts_Run(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	form, _ := b.post("/payouts/account", url.Values{"country": {"de"}})
	b.post(form.Request.URL.Path, url.Values{"answer": {"all"}})
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	b.earn("a", 25*money.Unit, false)
	_, doc := b.get("/admin/payouts")
	sound(t, "/admin/payouts", doc)
	run := url.Values{"once": {doc.Find("#run input[name=once]").AttrOr("value", "")}}
	if res, doc := b.post("/admin/payouts", run); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#run .err").Length() != 1 {
		t.Fatal(res.Status, doc.Find("#run").Text())
	}
	run.Set("reason", "asked for")
	for range 2 { // the same form, sent twice
		if res, doc := b.post("/admin/payouts", run); res.StatusCode != http.StatusOK ||
			!strings.Contains(doc.Find(".callout").Text(), "1 payouts were made") ||
			doc.Find("#payouts tbody tr").Length() != 1 {
			t.Fatal(res.Status, doc.Find("main").Text())
		}
	}
}

func TestAdminPromo(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	_, doc := b.get("/admin/promo")
	form := url.Values{
		"once":   {doc.Find("#new input[name=once]").AttrOr("value", "")},
		"code":   {"short"},
		"amount": {"five"},
		"uses":   {"x"},
	}
	if res, doc := b.post("/admin/promo", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#new .err").Length() != 2 || doc.Find("#code").AttrOr("value", "") != "short" {
		t.Error(res.Status, doc.Find("#new").Text())
	}
	form.Set("amount", "5.00")
	form.Set("uses", "3")
	if res, doc := b.post("/admin/promo", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#code-e").Length() != 1 || doc.Find("#reason-create-e").Length() != 1 {
		t.Error(res.Status, doc.Find("#new").Text())
	}
	form.Set("code", "welcome-2027")
	form.Set("reason", "a fair")
	form.Set("ends", "2099-12-31")
	for range 2 { // the same form, sent twice
		if res, doc := b.post("/admin/promo", form); res.StatusCode != http.StatusOK ||
			doc.Find("#codes .entry").Length() != 1 || !strings.Contains(doc.Find("#codes").Text(), "0 of 3") {
			t.Fatal(res.Status, doc.Find("main").Text())
		}
	}
	b.exec("UPDATE app_user SET email_verified_at = clock_timestamp()")
	b.post("/billing/promo", url.Values{"promo_code": {"welcome-2027"}})
	_, doc = b.get("/admin/promo?code=WELCOME-2027")
	sound(t, "/admin/promo", doc)
	if doc.Find("#used tbody tr").Length() != 1 || !strings.Contains(doc.Find("#used").Text(), "northlight") ||
		!strings.Contains(doc.Find("#codes").Text(), "1 of 3") {
		t.Error(doc.Find("main").Text())
	}
	end := url.Values{}
	if res, doc := b.post("/admin/promo/WELCOME-2027/disable", end); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#codes .err").Length() != 1 {
		t.Error(res.Status, doc.Find("#codes").Text())
	}
	end.Set("reason", "posted in public")
	if res, doc := b.post("/admin/promo/WELCOME-2027/disable", end); res.StatusCode != http.StatusOK ||
		doc.Find("#codes form").Length() != 0 || !strings.Contains(doc.Find("#codes").Text(), "Over") {
		t.Error(res.Status, doc.Find("#codes").Text())
	}
	if _, doc := b.get("/admin/audit?q=posted+in+public"); doc.Find("#acts tbody tr").Length() != 1 {
		t.Error(doc.Find("main").Text())
	}
}

// Frozen money moves again from its operator's page too.
func TestFrozenMoneyOnAnOrganisationsPage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org, _, _ := b.charge()
	lease := meteringtest.Frozen(t, b.db, org, org, "USD").String()
	page := "/admin/orgs/" + org.String()
	_, doc := b.get(page)
	sound(t, page, doc)
	form := url.Values{
		"lease": {doc.Find("#frozen input[name=lease]").AttrOr("value", "")},
		"once":  {doc.Find("#frozen input[name=once]").AttrOr("value", "")},
	}
	if form.Get("lease") != lease {
		t.Fatal(doc.Find("main").Text())
	}
	if res, doc := b.post(page+"/unfreeze", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#frozen .err").Length() != 1 {
		t.Errorf("%s %s", res.Status, doc.Find("#frozen").Text())
	}
	form.Set("reason", "restored from a backup")
	if res, doc := b.post(page+"/unfreeze", form); res.StatusCode != http.StatusOK || doc.Find("#frozen").Length() != 0 {
		t.Errorf("%s %s", res.Status, doc.Find("main").Text())
	}
}
