package web_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func TestPayingAfterwards(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, doc := b.get("/billing?tab=payments"); doc.Find("#postpaid").Length() != 0 || doc.Find("#auto").Length() != 1 {
		t.Error("who pays ahead sees credit")
	}
	org, cluster, _ := b.charge()
	p, err := postpaid.New(b.db, b.out, b.pay.Invoices, postpaid.Config{Currency: "USD"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	set := func(limit money.Nano) {
		t.Helper()
		if err := failed(p.Set(t.Context(), account.Principal{
			User:  id.New[id.User](),
			Admin: true,
		}, org, postpaid.Change{On: true, Limit: limit, Reason: "trusted"}, idem.Request{})); err != nil {
			t.Fatal(err)
		}
	}
	set(300 * money.Unit)
	_, doc := b.get("/billing")
	if got := doc.Find("#postpaid").Text(); !strings.Contains(got, "up to 300.00 USD") ||
		!strings.Contains(doc.Find("#available").Text(), "305.00") {
		t.Error(got, doc.Find("#available").Text())
	}
	if _, doc := b.get("/billing?tab=payments"); doc.Find("#auto").Length() != 0 {
		t.Error("who pays afterwards is offered automatic top-ups")
	}
	months := func() string { // a month may end meanwhile
		_, now := b.get("/billing/invoices")
		_, before := b.get(now.Find("a[rel=prev]").AttrOr("href", ""))
		return now.Find("#oncredit").Text() + before.Find("#oncredit").Text()
	}
	if got := months(); got != "" {
		t.Error("nothing was billed on credit, and an invoice says:", got)
	}
	hold := ledger.Hold(org, cluster, "USD")
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.PostAll(ctx, tx, []ledger.Entry{ // 5 are its own, and 1 is held of them
			{
				Kind:      "authorise",
				Key:       "authorise:2",
				Transfers: []ledger.Transfer{{Debit: ledger.Wallet(org, "USD"), Credit: hold, Amount: 30 * money.Unit}},
			},
			{
				Kind:      "usage",
				Key:       "usage:2",
				Ref:       cluster.String(),
				Transfers: []ledger.Transfer{{Debit: hold, Credit: ledger.Fee("USD"), Amount: 27_500_000_001}},
			},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	set(300 * money.Unit) // again, which bills what was used
	if got := months(); !strings.Contains(got, "21.5000") || !strings.Contains(got, "not with this one") {
		t.Errorf("the month's invoice says of credit: %q", got)
	}
	b.makeAdmin()
	if _, doc := b.get("/admin/books"); !strings.Contains(doc.Find("#postpaid").Text(), "300.00") {
		t.Error(doc.Find("#postpaid").Text())
	}
}

// The page of an organisation lists its invoices, and writes off one that was not paid.
func TestAdminOrg_WriteOffInvoice(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org := b.org()
	page := "/admin/orgs/" + org.String()
	if _, doc := b.get(page); doc.Find("#invoices").Length() != 0 {
		t.Error("who pays ahead has invoices")
	}
	b.exec("INSERT INTO postpaid_org (org_id, currency, state, credit_limit, reason, changed_by) VALUES ($1, 'USD', "+
		"'on', 0, '', $2)", org, id.New[id.User]())
	b.exec(`INSERT INTO postpaid_invoice (id, org_id, currency, number, state, period_start, period_end, charged, due,
		total, metered, attempts, made_at)
		VALUES ('in_1', $1, 'USD', 'N-1', 'open', now(), now(), 0, 1000, 1000, 1000, 1, now())`, org)
	_, doc := b.get(page)
	sound(t, page, doc)
	if got := doc.Find("#invoices").Text(); !strings.Contains(got, "Not paid") || !strings.Contains(got, "10.00") ||
		doc.Find("#invoices form").Length() != 1 {
		t.Fatalf("%q", got)
	}
	form := url.Values{
		"invoice": {"in_1"},
		"once":    {doc.Find("#invoices form input[name=once]").AttrOr("value", "")},
		"reason":  {""},
	}
	if _, doc := b.post(page+"/write-off", form); doc.Find("#invoices .err").Length() == 0 {
		t.Errorf("no reason is asked for: %q", doc.Find("#invoices").Text())
	}
	form.Set("reason", "insolvent")
	if _, doc = b.post(page+"/write-off", form); !strings.Contains(doc.Text(), "The invoice is given up.") ||
		doc.Find("#invoices form").Length() > 1 {
		t.Errorf("%q", doc.Find("main").Text())
	}
	// As it is once Stripe has said so, and after the payment that came all the same.
	for _, x := range []struct{ invoice, given, want string }{{"uncollectible", "booked", "Written off"},
		{"paid", "recovered", "Paid after all"}} {
		b.exec("UPDATE postpaid_invoice SET state = $1", x.invoice)
		b.exec("UPDATE postpaid_writeoff SET state = $1, amount = 10000000000", x.given)
		_, doc := b.get(page)
		sound(t, page, doc)
		if got := doc.Find("#invoices").Text(); !strings.Contains(got, x.want) || !strings.Contains(got, "insolvent") ||
			doc.Find("#invoices form").Length() != 0 {
			t.Errorf("%s: %q", x.want, got)
		}
	}
}

// The page of an organisation shows a refund of an invoice made at Stripe, and releases the hosts' earnings held for
// it.
func TestAdminOrg_ReleaseRefunded(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org := b.org()
	page := "/admin/orgs/" + org.String()
	b.exec(`INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency, reason, state, paid_at) VALUES
		('re_1', $1, 'in_1', 'refund', 10000000000, 0, 'USD', 'given back at Stripe', 'open', now())`, org)
	_, doc := b.get(page)
	sound(t, page, doc)
	if got := doc.Find("#disputes").Text(); !strings.Contains(got, "of an invoice") ||
		doc.Find("#disputes form").Length() != 1 {
		t.Fatalf("%q", got)
	}
	form := url.Values{
		"refund": {"re_1"},
		"once":   {doc.Find("#disputes form input[name=once]").AttrOr("value", "")},
		"reason": {""},
	}
	if _, doc := b.post(page+"/release-refund", form); doc.Find("#disputes .err").Length() == 0 {
		t.Errorf("no reason is asked for: %q", doc.Find("#disputes").Text())
	}
	form.Set("reason", "our fault")
	if _, doc = b.post(page+"/release-refund", form); doc.Find("#disputes form").Length() != 0 ||
		!strings.Contains(doc.Find("#disputes").Text(), "Refunded") {
		t.Errorf("%q", doc.Find("#disputes").Text())
	}
}

// The page of an organisation records a bank transfer for the part of an invoice that a lost dispute took.
func TestAdminOrg_RecordTransfer(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org := b.org()
	page := "/admin/orgs/" + org.String()
	b.exec("INSERT INTO postpaid_org (org_id, currency, state, credit_limit, reason, changed_by) VALUES ($1, 'USD', "+
		"'on', 0, '', $2)", org, id.New[id.User]())
	b.exec(`INSERT INTO postpaid_invoice (id, org_id, currency, number, state, period_start, period_end, charged, due,
		total, metered, attempts, made_at)
		VALUES ('in_1', $1, 'USD', 'N-1', 'paid', now(), now(), 0, 1000, 1000, 1000, 1, now())`, org)
	b.exec(`INSERT INTO dispute (id, org_id, invoice_id, kind, amount, held, currency, reason, state, paid_at) VALUES
		('dp_1', $1, 'in_1', 'dispute', 10000000000, 0, 'USD', 'fraudulent', 'lost', now())`, org)
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "dispute_funds",
			Key:  "stripe:txn_1",
			Ref:  org.String(),
			Memo: "dp_1",
			Transfers: []ledger.Transfer{{
				Debit:  ledger.Receivable(org, "USD"),
				Credit: ledger.StripeClearing("USD"),
				Amount: 10 * money.Unit,
			}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, doc := b.get(page)
	sound(t, page, doc)
	field := func(name string) string {
		return doc.Find("#invoices form[action$=bank-payment] input[name="+name+"]").AttrOr("value", "")
	}
	if field("amount") != "10.00" || doc.Find("#invoices form").Length() != 2 { // and to give it up
		t.Fatalf("%q", doc.Find("#invoices").Text())
	}
	form := url.Values{
		"invoice":   {"in_1"},
		"once":      {field("once")},
		"amount":    {"10.01"},
		"reference": {"T 1"},
		"reason":    {"on the statement"},
	}
	_, doc = b.post(page+"/bank-payment", form)
	if doc.Find("#invoices .err").Length() == 0 || field("reference") != "T 1" {
		t.Errorf("too much: %q", doc.Find("#invoices").Text())
	}
	form.Set("amount", "4.00")
	form.Set("once", field("once"))
	if _, doc = b.post(page+"/bank-payment", form); !strings.Contains(doc.Text(), "The transfer is booked.") ||
		field("amount") != "6.00" || !strings.Contains(doc.Find("#invoices").Text(), "4.00 by bank") {
		t.Errorf("%q", doc.Find("main").Text())
	}
	sound(t, page, doc)
	form.Set("amount", "6.00")
	form.Set("reference", "T 2")
	form.Set("once", field("once"))
	if _, doc = b.post(page+"/bank-payment", form); doc.Find("#invoices form").Length() != 0 ||
		!strings.Contains(doc.Find("#invoices").Text(), "10.00 by bank") {
		t.Errorf("%q", doc.Find("main").Text())
	}
}
