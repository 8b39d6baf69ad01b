package web_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
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
	org, _, _ := b.charge()
	p, err := postpaid.New(b.db, b.pay, postpaid.Config{Currency: "USD"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := p.Set(ctx, tx, account.Principal{User: id.New[id.User](), Admin: true}, org, postpaid.Change{On: true, Limit: 300 * money.Unit, Reason: "trusted"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, doc := b.get("/billing")
	if got := doc.Find("#postpaid").Text(); !strings.Contains(got, "up to 300.00 USD") || doc.Find("#auto").Length() != 0 || !strings.Contains(doc.Find("#available").Text(), "305.00") {
		t.Error(got, doc.Find("#available").Text())
	}
	b.makeAdmin()
	if _, doc := b.get("/admin/books"); !strings.Contains(doc.Find("#postpaid").Text(), "300.00") {
		t.Error(doc.Find("#postpaid").Text())
	}
}
