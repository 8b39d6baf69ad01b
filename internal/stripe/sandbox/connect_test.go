package sandbox

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Accounts, links, transfers and reversals, and their events, are as Stripe describes them.
func TestConform_Connect(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	get, post := http.MethodGet, http.MethodPost
	acct := k.do(post, "/v1/accounts", 200, "type", "express", "country", "DE", "email", "a@b.c", "metadata[org]", "org_1",
		"capabilities[transfers][requested]", "true")
	k.do(get, "/v1/accounts/"+acct, 200)
	k.do(get, "/v1/accounts/acct_none", 404)
	k.do(post, "/v1/accounts", 400, "type", "custom", "country", "DE")
	k.do(post, "/v1/accounts", 400, "type", "express", "country", "Germany")
	k.do(post, "/v1/account_links", 200, "account", acct, "type", "account_onboarding", "refresh_url", "http://m/again",
		"return_url", "http://m/back")
	k.do(post, "/v1/account_links", 404, "account", "acct_none", "type", "account_onboarding")
	k.do(post, "/v1/payment_intents", 200, "amount", "10000", "currency", "eur", "payment_method", "pm_card_visa",
		"confirm", "true")

	send := func(want int, cents, to string) string {
		t.Helper()
		return k.do(post, "/v1/transfers", want, "amount", cents, "currency", "eur", "destination", to, "transfer_group",
			"po_1", "metadata[payout]", "po_1")
	}
	send(400, "100", acct) // not onboarded
	k.s.Accounts.Onboard(acct, "external_account")
	send(400, "100", acct)
	k.s.Accounts.Onboard(acct)
	k.do(get, "/v1/accounts/"+acct, 200)
	tr := send(200, "2000", acct)
	send(400, "100000", acct) // more than there is
	send(400, "0", acct)
	send(400, "100", "acct_none")
	k.do(get, "/v1/transfers/"+tr, 200)
	k.do(get, "/v1/transfers", 200, "transfer_group", "po_1")
	k.do(post, "/v1/transfers/"+tr+"/reversals", 200, "amount", "500", "metadata[reversal]", "r1")
	k.do(post, "/v1/transfers/"+tr+"/reversals", 400, "amount", "1501")
	for range 11 {
		if k.s.Transfers.Reverse(tr, 1) == "" {
			t.Fatal("not reversed")
		}
	}
	k.do(get, "/v1/transfers/"+tr+"/reversals", 200, "limit", "100")
	k.do(get, "/v1/transfers/"+tr, 200)
	k.do(get, "/v1/balance_transactions", 200, "expand[0]", "data.source", "limit", "100")
	if n, cents := k.s.Transfers.Total(acct); n != 1 || cents != 1489 {
		t.Fatal(n, cents)
	}
	if got, want := k.s.Balance.Cents("eur"), 10000-feeOf(10000)-1489; got != want {
		t.Fatal(got, want)
	}
	o, err := published()
	if err != nil {
		t.Fatal(err)
	}
	o.eventsAsPublished(t, k.s.Webhooks.Deliveries())
}

// The onboarding page takes one visit; a spent link leads to where a new one is made.
func TestPages_Onboarding(t *testing.T) {
	t.Parallel()
	s, srv := serve(t, Config{})
	if status, body := call(t, srv, "/v1/accounts", "a", url.Values{
		"type":    {"express"},
		"country": {"DE"},
	}); status != 200 {
		t.Fatal(status, body)
	}
	acct := s.Accounts.IDs()[0]
	link := func(key string) string {
		t.Helper()
		form := url.Values{
			"account":     {acct},
			"type":        {"account_onboarding"},
			"refresh_url": {"/again"},
			"return_url":  {"/back"},
		}
		if status, body := call(t, srv, "/v1/account_links", key, form); status != 200 {
			t.Fatal(status, body)
		}
		return srv.URL + "/pay/accounts/" + s.store.Links.Order[len(s.store.Links.Order)-1]
	}
	srv.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	click := func(page, answer string) string {
		t.Helper()
		resp, err := srv.Client().PostForm(page, url.Values{"answer": {answer}})
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // of no interest
		return resp.Header.Get("Location")
	}
	first := link("b")
	resp, err := srv.Client().Get(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read whole
	if err != nil || !strings.Contains(string(b), "no real money") {
		t.Fatal(string(b), err)
	}
	if to := click(first, "no_bank"); to != "/back" ||
		s.store.Accounts.get(acct).Requirements.CurrentlyDue[0] != "external_account" {
		t.Fatal(to)
	}
	if to := click(first, "all"); to != "/again" || s.store.Accounts.get(acct).Payouts {
		t.Fatal(to)
	}
	if to := click(link("c"), "all"); to != "/back" || !s.store.Accounts.get(acct).Payouts {
		t.Fatal(to)
	}
}
