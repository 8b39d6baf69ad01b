package web_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/ledger"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/postpaid"
)

func TestPayingAfterwards(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, doc := b.get("/billing"); doc.Find("#postpaid").Length() != 0 || doc.Find("#auto").Length() != 1 {
		t.Error("who pays ahead sees credit")
	}
	org, cluster, _ := b.charge()
	p, err := postpaid.New(b.db, b.pay, postpaid.Config{Currency: "USD"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	set := func(limit money.Nano) {
		t.Helper()
		if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := p.Set(ctx, tx, account.Principal{User: id.New[id.User](), Admin: true}, org, postpaid.Change{On: true, Limit: limit, Reason: "trusted"})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	set(300 * money.Unit)
	_, doc := b.get("/billing")
	if got := doc.Find("#postpaid").Text(); !strings.Contains(got, "up to 300.00 USD") || doc.Find("#auto").Length() != 0 || !strings.Contains(doc.Find("#available").Text(), "305.00") {
		t.Error(got, doc.Find("#available").Text())
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
			{Kind: "authorise", Key: "authorise:2", Transfers: []ledger.Transfer{{Debit: ledger.Wallet(org, "USD"), Credit: hold, Amount: 30 * money.Unit}}},
			{Kind: "usage", Key: "usage:2", Ref: cluster.String(), Transfers: []ledger.Transfer{{Debit: hold, Credit: ledger.Fee("USD"), Amount: 27_500_000_001}}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	set(300 * money.Unit) // again, which bills what was used
	if got := months(); !strings.Contains(got, "21.500000001") || !strings.Contains(got, "not with this one") {
		t.Errorf("the month's invoice says of credit: %q", got)
	}
	b.makeAdmin()
	if _, doc := b.get("/admin/books"); !strings.Contains(doc.Find("#postpaid").Text(), "300.00") {
		t.Error(doc.Find("#postpaid").Text())
	}
}
