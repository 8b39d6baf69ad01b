package stripe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/stripe"
)

// An account, its onboarding, a transfer with a lost answer, and what comes back of it.
func TestTransfer_ConnectedAccount(t *testing.T) {
	t.Parallel()
	c, fake := connect(t)
	a, err := c.CreateAccount(t.Context(), "a", stripe.NewAccount{Org: "org_1", Country: "DE", Email: "a@b.c"})
	if err != nil || a.Ready() || a.Org != "org_1" || len(a.Due) == 0 {
		t.Fatalf("%+v %v", a, err)
	}
	again, err := c.CreateAccount(t.Context(), "a", stripe.NewAccount{Org: "org_1", Country: "DE", Email: "a@b.c"})
	if err != nil || again.ID != a.ID {
		t.Fatal(again, err)
	}
	if page, err := c.CreateAccountLink(t.Context(), "l", stripe.NewAccountLink{
		Account: a.ID,
		Refresh: "http://m.test/again",
		Return:  "http://m.test/back",
	}); err != nil || page == "" {
		t.Fatal(page, err)
	}
	if _, err := c.CreatePayment(t.Context(), "p", stripe.NewPayment{
		TopUp:    "top_1",
		Method:   "pm_card_visa",
		Customer: customer(t, c),
		Cents:    10_000,
		Currency: "EUR",
	}); err != nil {
		t.Fatal(err)
	}
	send := func(key string, cents int64) (stripe.Transfer, error) {
		return c.CreateTransfer(t.Context(), key, stripe.NewTransfer{
			Payout:   "po_" + key,
			Account:  a.ID,
			Cents:    cents,
			Currency: "EUR",
		})
	}
	if _, err := send("early", 100); stripe.As(err) == nil || stripe.As(err).Outcome != stripe.Rejected {
		t.Fatal(err)
	}
	fake.Accounts.Onboard(a.ID)
	if a, err = c.Account(t.Context(), a.ID); err != nil || !a.Ready() || !a.Submitted || len(a.Due) != 0 {
		t.Fatalf("%+v %v", a, err)
	}
	if _, err := send("much", 1_000_000); stripe.As(err) == nil || stripe.As(err).Code != stripe.CodeNoBalance {
		t.Fatal(err)
	}
	first, err := send("x", 2_000)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stripe.Transfer{
		ID:       first.ID,
		Payout:   "po_x",
		Account:  a.ID,
		Cents:    2_000,
		Currency: "EUR",
	}, first); diff != "" {
		t.Fatal(diff)
	}
	if twice, err := send("x", 2_000); err != nil || twice.ID != first.ID {
		t.Fatal(twice, err)
	}
	if found, err := c.FindTransfer(t.Context(), "po_x"); err != nil || found == nil || found.ID != first.ID {
		t.Fatal(found, err)
	}
	if found, err := c.FindTransfer(t.Context(), "po_none"); err != nil || found != nil {
		t.Fatal(found, err)
	}
	r, err := c.ReverseTransfer(t.Context(), "r", stripe.NewReversal{Reversal: "rev_1", Transfer: first.ID, Cents: 300})
	if err != nil || r.Reversal != "rev_1" || r.Cents != 300 {
		t.Fatal(r, err)
	}
	for range 12 { // more than a transfer shows of itself
		fake.Transfers.Reverse(first.ID, 10)
	}
	now, err := c.Transfer(t.Context(), first.ID)
	if err != nil || len(now.Reversals) != 13 {
		t.Fatal(now, err)
	}
	if n, cents := fake.Transfers.Total(a.ID); n != 1 || cents != 2_000-300-120 {
		t.Fatal(n, cents)
	}
	if _, err := c.Transfer(t.Context(), "tr_gone"); stripe.As(err) == nil || stripe.As(err).Outcome != stripe.Missing {
		t.Fatal(err)
	}
}
