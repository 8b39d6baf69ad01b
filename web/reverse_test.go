package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// A reversal of a payout that Stripe refuses is shown with its reason, to the operator and on the admin pages, where
// it is asked for again.
func TestARefusedReversalIsShownOnThePayout(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	page := "/admin/orgs/" + b.org().String()
	if _, doc := b.get(page); doc.Find("#take-back").Length() != 0 {
		t.Error("there is nothing to take back")
	}
	form, _ := b.post("/payouts/account", url.Values{"country": {"de"}})
	b.post(form.Request.URL.Path, url.Values{"answer": {"all"}})
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	b.earn("a", 25*money.Unit, false)
	if res, doc := b.post(page+"/pay", url.Values{"reason": {"now"}}); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, doc.Find("main").Text())
	}
	list, err := b.outs.List(t.Context(), account.Principal{Admin: true}, b.org(), id.Payout{}, 1)
	if err != nil || len(list) != 1 || list[0].Transfer == "" {
		t.Fatal(list, err)
	}
	if _, err := b.out.Client().ReverseTransfer(t.Context(), "by hand", stripe.NewReversal{
		Reversal: "by hand",
		Transfer: list[0].Transfer,
		Cents:    2000,
	}); err != nil {
		t.Fatal(err) // in Stripe's dashboard, without us
	}
	send := func(fields url.Values) (*http.Response, string) {
		res, doc := b.post(page+"/reverse", fields)
		sound(t, page, doc)
		return res, doc.Find("main").Text()
	}
	ours := url.Values{"payout": {list[0].ID.String()}, "reason": {"sent twice"}}
	for _, bad := range []url.Values{{
		"payout": {"x"},
		"reason": {"x"},
	}, {"payout": ours["payout"]}, {"payout": ours["payout"], "reason": {"x"}, "amount": {"-1"}},
		{
			"payout": ours["payout"],
			"reason": {"x"},
			"amount": {"0.001"},
		}, {"payout": ours["payout"], "reason": {"x"}, "amount": {"25.01"}}} {
		if res, text := send(bad); res.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%v: %s %s", bad, res.Status, text)
		}
	}
	if res, text := send(url.Values{
		"payout": {id.New[id.Payout]().String()},
		"reason": {"x"},
	}); res.StatusCode != http.StatusConflict {
		t.Error(res.Status, text)
	}
	if res, text := send(ours); res.StatusCode != http.StatusOK ||
		!strings.Contains(text, "Stripe is asked to take it back") {
		t.Fatal(res.Status, text)
	}
	for _, path := range []string{"/payouts", page, "/admin/payouts"} {
		_, doc := b.get(path)
		if row := doc.Find("#payouts tbody tr").Text(); !strings.Contains(row, "Not taken back") ||
			!strings.Contains(row, "Stripe refused to take 25.00 back: ") {
			t.Errorf("%s: %s", path, row)
		}
	}
	_, doc := b.get(page)
	if got := doc.Find("#take-back-amount").AttrOr("value", ""); got != "25.00" {
		t.Errorf("the form holds %q", got)
	}
	ours.Set("amount", "5.00")
	if res, text := send(ours); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, text)
	}
	if _, doc := b.get("/payouts"); !strings.Contains(doc.Find("#payouts tbody tr").Text(), "Taken back") ||
		strings.Contains(doc.Find("#payouts tbody tr").Text(), "refused") {
		t.Error(doc.Find("#payouts").Text()) // what was taken by hand is found out with it
	}
}
