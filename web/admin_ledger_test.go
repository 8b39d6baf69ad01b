package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
)

// usageKey is the key of a lease's charge: what is given back of it is bounded by all charges of that lease.
const usageKey = "usage:ls_test:4000000000"

// charge books a top-up of 10 and a charge of 4 for a cluster of the visitor's org, and returns org, cluster and the
// charge.
func (b *browser) charge() (id.Org, id.Cluster, ledger.Booked) {
	b.t.Helper()
	var org id.Org
	if err := b.db.Pool.QueryRow(b.t.Context(), "SELECT id FROM org").Scan(&org); err != nil {
		b.t.Fatal(err)
	}
	cl := id.New[id.Cluster]()
	hold := ledger.Hold(org, cl, "USD")
	err := b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.PostAll(ctx, tx, []ledger.Entry{
			{
				Kind: "topup",
				Key:  "topup:pi_1",
				Transfers: []ledger.Transfer{{
					Debit:  ledger.StripeClearing("USD"),
					Credit: ledger.Wallet(org, "USD"),
					Amount: 10 * money.Unit,
				}},
			},
			{
				Kind:      "authorise",
				Key:       "authorise:1",
				Transfers: []ledger.Transfer{{Debit: ledger.Wallet(org, "USD"), Credit: hold, Amount: 5 * money.Unit}},
			},
			{
				Kind:      "usage",
				Key:       usageKey,
				Ref:       cl.String(),
				Transfers: []ledger.Transfer{{Debit: hold, Credit: ledger.Fee("USD"), Amount: 4 * money.Unit}},
			},
		})
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	found, err := ledger.Search(b.t.Context(), b.db.Q, usageKey, id.LedgerTx{}, 1)
	if err != nil || len(found) != 1 {
		b.t.Fatal(found, err)
	}
	return org, cl, found[0]
}

func (b *browser) makeAdmin() {
	b.t.Helper()
	if err := account.New(b.db, account.Config{}).SetAdmin(b.t.Context(), "mira@northlight.example", true); err != nil {
		b.t.Fatal(err)
	}
}

func TestTheBooksAreForAdminsOnly(t *testing.T) {
	t.Parallel()
	b := open(t)
	refused := func(who string) {
		t.Helper()
		for _, path := range []string{"/admin/books", "/admin/books/entries?q=x"} {
			if res, doc := b.get(path); res.StatusCode != http.StatusNotFound || doc.Find("table").Length() != 0 {
				t.Errorf("%s opens %s: %s", who, path, res.Status)
			}
		}
		if res, _ := b.post("/admin/books/compensations", url.Values{
			"charge": {id.New[id.LedgerTx]().String()},
			"reason": {"x"},
		}); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s compensates: %s", who, res.Status)
		}
		if res, _ := b.post("/admin/books/unfreeze", url.Values{
			"lease":  {id.New[id.Lease]().String()},
			"reason": {"x"},
		}); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s unfreezes: %s", who, res.Status)
		}
	}
	refused("nobody")
	b.signUp()
	refused("a renter")
	if _, doc := b.get("/billing"); doc.Find(`.nav a[href="/admin"]`).Length() != 0 {
		t.Error("a renter sees a link to the ledger")
	}
	b.makeAdmin()
	res, doc := b.get("/admin/books")
	if res.StatusCode != http.StatusOK || doc.Find(`.subnav a[href="/admin/books"][aria-current=page]`).Length() != 1 {
		t.Errorf("an admin: %s %s", res.Status, doc.Find("main").Text())
	}
}

func TestTheBooksAtAGlance(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org, _, _ := b.charge()
	tamper := func(by string) { // without triggers, as the owner of the tables can
		t.Helper()
		if _, err := b.db.Pool.Exec(t.Context(), `DO $$ BEGIN SET LOCAL session_replication_role = replica;
			UPDATE ledger_balance SET amount = amount `+by+` WHERE account_id =
			(SELECT id FROM ledger_account WHERE kind = 'renter_wallet'); END $$`); err != nil {
			t.Fatal(err)
		}
	}
	tamper("+ 1")
	_, doc := b.get("/admin/books")
	if text := doc.Find("#balance").Text(); !strings.Contains(text, "Not balanced") ||
		doc.Find("main .callout[role=alert]").Length() != 1 {
		t.Errorf("a wrong balance is not told: %s", text)
	}
	err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind:      "payout_mature",
			Key:       "mature:1",
			Transfers: []ledger.Transfer{{Debit: ledger.HostPending(org, "USD"), Credit: ledger.Fee("USD"), Amount: money.Unit}},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tamper("- 1")
	_, doc = b.get("/admin/books")
	if text := doc.Find("#balance").Text(); !strings.Contains(text, "Balanced") {
		t.Errorf("balanced ledger: %s", text)
	}
	if text := doc.Find("#balance").Text(); !strings.Contains(text, "Not posted yet0.00") {
		t.Errorf("what is not posted: %s", text)
	}
	totals := map[string]string{}
	for _, tr := range doc.Find("#trial tbody tr").EachIter() {
		totals[tr.Find("th").Text()] = tr.Find("td.num").Text()
	}
	if totals["stripe_clearing"] != "\u221210.000000000" || totals["platform_fee"] != "5.000000000" ||
		totals["renter_hold"] != "1.000000000" {
		t.Errorf("%v", totals)
	}
	if text := doc.Find("#below tbody").Text(); !strings.Contains(text, "host_pending") ||
		!strings.Contains(text, "\u22121.000000000") {
		t.Errorf("below zero: %s", text)
	}
	if text := doc.Find("#stripe").Text(); !strings.Contains(text, "\u221210.000000000") {
		// the sandbox's Stripe knows nothing of the top-up
		t.Errorf("beside Stripe: %s", text)
	}
	if n := doc.Find("[style], script:not([src]), input:not([type=hidden]):not([id])").Length(); n != 0 {
		t.Errorf("%d inline styles, scripts or fields without label", n)
	}
}

func TestAChargeIsFoundAndGivenBackOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org, cl, charge := b.charge()
	for q, want := range map[string]int{
		usageKey:                  1,
		org.String():              3,
		cl.String():               1,
		charge.ID.String():        1,
		"no such":                 0,
		id.New[id.Org]().String(): 0,
	} {
		if _, doc := b.get("/admin/books/entries?" +
			url.Values{"q": {q}}.Encode()); doc.Find("#entries tbody").Length() != want {
			t.Errorf("%s: %s", q, doc.Find("#entries").Text())
		}
	}
	_, doc := b.get("/admin/books/entries?q=" + usageKey)
	link, _ := doc.Find("#entries tbody a[href$='#compensate']").Attr("href")
	_, doc = b.get(strings.TrimSuffix(link, "#compensate"))
	if v := doc.Find("#charge").AttrOr("value", ""); v != charge.ID.String() {
		t.Fatalf("%q leads to a form for %q", link, v)
	}
	form := url.Values{"once": {doc.Find("#compensate input[name=once]").AttrOr("value", "")}, "q": {usageKey}}
	send := func(charge, amount, reason string) (status int, wrong []string, text string) {
		form.Set("charge", charge)
		form.Set("amount", amount)
		form.Set("reason", reason)
		res, doc := b.post("/admin/books/compensations", form)
		wrong = doc.Find("#compensate .err").Map(func(_ int, s *goquery.Selection) string { return s.AttrOr("id", "") })
		return res.StatusCode, wrong, doc.Find("main").Text()
	}
	for field, f := range map[string][3]string{
		"charge-e": {id.New[id.LedgerTx]().String(), "", "an outage"},
		"amount-e": {charge.ID.String(), "4.000000001", "an outage"},
		"reason-e": {charge.ID.String(), "1", " "},
	} {
		if status, wrong, text := send(f[0], f[1], f[2]); status != http.StatusUnprocessableEntity || len(wrong) != 1 ||
			wrong[0] != field {
			t.Errorf("%v: %d %v %s", f, status, wrong, text)
		}
	}
	for range 2 { // the same form, sent twice
		if status, _, text := send(charge.ID.String(), "1.5", "an outage"); status != http.StatusOK ||
			!strings.Contains(text, "was refunded") || !strings.Contains(text, "an outage") {
			t.Fatalf("%d %s", status, text)
		}
	}
	if n, err := ledger.Balance(t.Context(), b.db.Q, ledger.Wallet(org, "USD")); err != nil || n != 5*money.Unit+
		1_500_000_000 {
		t.Errorf("the wallet has %s, %v", n, err)
	}
}

// A frozen lease is shown with both accounts of its host, and its money moves again once, with a reason.
func TestAFrozenLeaseIsShownAndLetGo(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	if _, doc := b.get("/admin/books"); doc.Find("#frozen, #unfreeze").Length() != 0 {
		t.Error("frozen leases where there are none")
	}
	org, _, _ := b.charge()
	lease := meteringtest.Frozen(t, b.db, org, org, "USD").String()
	_, doc := b.get("/admin/books")
	if text := doc.Find("#frozen tbody").Text(); !strings.Contains(text, "Segment 1 of start 1") ||
		!strings.Contains(text, "stands") {
		t.Errorf("why: %s", text)
	}
	form := url.Values{
		"once":  {doc.Find("#unfreeze input[name=once]").AttrOr("value", "")},
		"lease": {doc.Find("#unfreeze option").AttrOr("value", "")},
	}
	if form.Get("lease") != lease {
		t.Fatalf("the form is for %q", form.Get("lease"))
	}
	if res, doc := b.post("/admin/books/unfreeze", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#unfreeze #reason-e").Length() != 1 {
		t.Errorf("without a reason: %s %s", res.Status, doc.Find("#unfreeze").Text())
	}
	form.Set("reason", "restored from a backup")
	for range 2 { // the same form, sent twice
		res, doc := b.post("/admin/books/unfreeze", form)
		if res.StatusCode != http.StatusOK || doc.Find("#frozen").Length() != 0 || !strings.Contains(doc.Find("main").Text(),
			"is unfrozen") {
			t.Fatalf("%s %s", res.Status, doc.Find("main").Text())
		}
	}
	form.Del("once")
	if res, doc := b.post("/admin/books/unfreeze", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#lease-e").Length() != 1 {
		t.Errorf("not frozen: %s %s", res.Status, doc.Find("main").Text())
	}
}

// Only platform operators can choose the scope for the ledger commands.
func TestAdminLedger_TokenScope(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, doc := b.get("/account"); doc.Find("input[name=scope][value=admin]").Length() != 0 {
		t.Error("a renter is offered the scope admin")
	}
	b.makeAdmin()
	if _, doc := b.get("/account"); doc.Find("input[name=scope][value=admin]").Length() != 1 ||
		doc.Find("input[name=scope][value=admin][checked]").Length() != 0 {
		t.Error("an admin is not offered the scope admin, or it is ticked")
	}
	if res, doc := b.post("/account/tokens", url.Values{
		"token_name": {"books"},
		"scope":      {"read", "admin"},
	}); res.StatusCode != http.StatusOK || !strings.Contains(doc.Find("#tokens").Text(), "admin") {
		t.Errorf("%s %s", res.Status, doc.Find("main").Text())
	}
}
