package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func TestUnusedBalanceIsGivenBack(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, page := b.post("/billing/topups",
		url.Values{"amount": {"12.00"}}); !strings.HasPrefix(strings.TrimSpace(page.Find("#available").Text()), "12.00") {
		t.Fatal(page.Find("main").Text())
	}
	_, page := b.get("/billing?tab=payments")
	if help := page.Find("#refund_amount-h").Text(); !strings.Contains(help, "12.00") {
		t.Errorf("what can be given back is not told: %q", help)
	}
	form := url.Values{"once": {page.Find("#refund input[name=once]").AttrOr("value", "")}}
	for amount, want := range map[string]int{
		"x":     http.StatusUnprocessableEntity,
		"0.001": http.StatusUnprocessableEntity,
		"-1":    http.StatusUnprocessableEntity,
		"12.01": http.StatusConflict,
	} {
		form.Set("refund_amount", amount)
		res, page := b.post("/billing/refunds", form)
		if res.StatusCode != want || page.Find("#refund_amount-e").Length() != 1 ||
			page.Find("#refund_amount").AttrOr("value", "") != amount {
			t.Errorf("%s: %s %s", amount, res.Status, page.Find("#refund").Text())
		}
	}
	form.Set("refund_amount", "5.00")
	for range 2 { // the same form, sent twice
		if _, page = b.post("/billing/refunds", form); page.Find("#refund .callout").Length() != 1 {
			t.Fatal(page.Find("main").Text())
		}
	}
	if got := strings.TrimSpace(page.Find("#available").Text()); !strings.HasPrefix(got, "7.00") ||
		page.Find("#refunds tbody tr").Length() != 1 {
		t.Errorf("available is %s; %s", got, page.Find("#refunds").Text())
	}
}

func TestACodeIsRedeemed(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	var user id.User
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM app_user").Scan(&user); err != nil {
		t.Fatal(err)
	}
	err := failed(b.pay.PromoCodes.Create(t.Context(), account.Principal{
		User:  user,
		Admin: true,
	}, payment.PromoCode{Code: "SPRING-2026", Amount: 3 * money.Unit, MaxUses: 5}, "a test", idem.Request{}))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(code string, want int) {
		t.Helper()
		res, page := b.post("/billing/promo", url.Values{"promo_code": {code}})
		if res.StatusCode != want || page.Find("#promo_code-e").Length() != 1 || page.Find("#promo_code").AttrOr("value",
			"") != code {
			t.Errorf("%s: %s %s", code, res.Status, page.Find("#promo").Text())
		}
	}
	refused("NO-SUCH-CODE", http.StatusUnprocessableEntity)
	_, page := b.post("/billing/promo", url.Values{"promo_code": {" spring-2026 "}})
	if got := strings.TrimSpace(page.Find("#available").Text()); !strings.HasPrefix(got, "3.00") ||
		page.Find("#promo .callout").Length() != 1 {
		t.Errorf("available is %s; %s", got, page.Find("#promo").Text())
	}
	refused("SPRING-2026", http.StatusConflict)
	if help := page.Find("#refund_amount-h").Text(); !strings.Contains(help, "0.00") {
		t.Errorf("credit from a code can be given back: %q", help)
	}
	for range 7 {
		b.post("/billing/promo", url.Values{"promo_code": {"GUESS-1234"}})
	}
	refused("GUESS-1234", http.StatusTooManyRequests)
}
