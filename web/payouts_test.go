package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// An operator sets payouts up on Stripe's form, comes back, and sees what was paid.
func TestPayoutsPage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, page := b.get("/payouts")
	if page.Find("#account .badge").Text() == "" || page.Find("select#country option").Length() != 250 ||
		!strings.Contains(page.Find("#pending").Parent().Text(), "30 days") {
		t.Fatal(page.Find("main").Text())
	}
	if res, page := b.post("/payouts/account",
		url.Values{"country": {"Germany"}}); res.StatusCode != http.StatusUnprocessableEntity ||
		page.Find("#country-e").Length() != 1 {
		t.Fatal(res.Status, page.Find("#account").Text())
	}
	form, _ := b.post("/payouts/account", url.Values{"country": {"de"}})
	path := form.Request.URL.Path
	if !strings.HasPrefix(path, "/sandbox/pay/accounts/") {
		t.Fatal(path, form.Status)
	}
	_, page = b.post(path, url.Values{"answer": {"no_bank"}}) // back on our page, which asks at once
	if page.Find("#due li").Length() != 1 || page.Find("#due li").Text() != "Your bank account" ||
		page.Find("#country").Length() != 0 {
		t.Fatal(page.Find("main").Text())
	}
	form, _ = b.post("/payouts/account", nil)
	if _, page = b.post(form.Request.URL.Path,
		url.Values{"answer": {"all"}}); strings.TrimSpace(page.Find("#account .badge").Text()) != "Ready" {
		t.Fatal(page.Find("main").Text())
	}
	if spent, _ := b.get(path); spent.Request.URL.Path != "/payouts" {
		t.Fatal(spent.Request.URL)
	}
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	var org id.Org
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&org); err != nil {
		t.Fatal(err)
	}
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "test", Transfers: []ledger.Transfer{
			{Debit: ledger.Wallet(org, "USD"), Credit: ledger.HostPending(org, "USD"), Amount: 25 * money.Unit}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, page = b.get("/payouts"); !strings.HasPrefix(strings.TrimSpace(page.Find("#pending").Text()), "25.00") {
		t.Fatal(page.Find("main").Text())
	}
	if _, err := payout.Mature(t.Context(), b.db, -time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.Pool.Exec(t.Context(),
		"UPDATE payout_account SET next_at = clock_timestamp() - interval '1 second'"); err != nil {
		t.Fatal(err)
	}
	if n, err := b.outs.PayDue(t.Context()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	_, page = b.get("/payouts")
	if row := page.Find("#payouts tbody tr"); row.Length() != 1 || !strings.Contains(row.Text(), "Paid") ||
		!strings.HasPrefix(strings.TrimSpace(page.Find("#paid").Text()), "25.00") {
		t.Fatal(page.Find("main").Text())
	}
}

// The operator sees what is in review, and the rest as ever.
func TestThePayoutsPageSaysWhatIsInReview(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, page := b.get("/payouts"); page.Find("#in-review").Length() != 0 {
		t.Fatal(page.Find("main").Text())
	}
	var org id.Org
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&org); err != nil {
		t.Fatal(err)
	}
	linked, other := id.New[id.Org](), id.New[id.Org]()
	for _, o := range []id.Org{linked, other} {
		if _, err := b.db.Pool.Exec(t.Context(), "INSERT INTO org (id, name, personal) VALUES ($1, 'r', false)",
			o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.db.Pool.Exec(t.Context(), "INSERT INTO membership (org_id, user_id, role) SELECT $1, id, 'owner' "+
		"FROM app_user", linked); err != nil {
		t.Fatal(err)
	}
	for o, n := range map[id.Org]money.Nano{linked: 30 * money.Unit, other: 12 * money.Unit} {
		if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind: "topup",
				Key:  "of " + o.String(),
				Transfers: []ledger.Transfer{
					{
						Debit:  ledger.StripeClearing("USD"),
						Credit: ledger.Wallet(o, "USD"),
						Amount: n,
					}, {Debit: ledger.Wallet(o, "USD"), Credit: ledger.HostPending(org, "USD"), Amount: n}},
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := payout.Mature(t.Context(), b.db, -time.Hour); err != nil {
		t.Fatal(err)
	}
	_, page := b.get("/payouts")
	if !strings.Contains(page.Find("#in-review").Text(), "30.00 USD in review") ||
		!strings.HasPrefix(strings.TrimSpace(page.Find("#payable").Text()), "12.00") {
		t.Fatal(page.Find("main").Text())
	}
}
