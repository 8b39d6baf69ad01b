package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func TestReviewsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("", "admin", "reviews"); r.code != 1 {
		t.Errorf("a renter may see reviews: exit %d %s", r.code, r.out)
	}
	p.admin("ada@example.com")
	var operator id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&operator); err != nil {
		t.Fatal(err)
	}
	renter := id.New[id.Org]()
	for _, sql := range []string{"INSERT INTO org (id, name, personal) VALUES ($1, 'r', false)",
		"INSERT INTO membership (org_id, user_id, role) SELECT $1, id, 'owner' FROM app_user"} {
		if _, err := p.db.Pool.Exec(t.Context(), sql, renter); err != nil {
			t.Fatal(err)
		}
	}
	earn := func(key string) {
		t.Helper()
		if err := p.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: key, Transfers: []ledger.Transfer{
				{Debit: ledger.StripeClearing("USD"), Credit: ledger.Wallet(renter, "USD"), Amount: 7 * money.Unit},
				{Debit: ledger.Wallet(renter, "USD"), Credit: ledger.HostPending(operator, "USD"), Amount: 7 * money.Unit}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := payout.Mature(t.Context(), p.db, 0); err != nil {
			t.Fatal(err)
		}
	}
	earn("first")
	if out := p.ok("payout", "show"); !strings.Contains(out, "7.00 USD more is in review") {
		t.Error(out)
	}
	if out := p.ok("admin", "reviews"); !strings.Contains(out, "member") || !strings.Contains(out, "1 reviews.") {
		t.Error(out)
	}
	review := p.json("admin", "reviews")["items"].([]any)[0].(map[string]any)["id"].(string)
	for _, args := range [][]string{{"release", review}, {"refuse", "x", "--reason", "y"}} {
		if r := p.run("", append([]string{"admin"}, args...)...); r.code == 0 {
			t.Errorf("%v: %s", args, r.out)
		}
	}
	if v := p.json("admin", "release", review, "--reason", "a subsidiary"); v["released"] != "7.000000000" {
		t.Error(v)
	}
	earn("second")
	if v := p.json("admin", "refuse", review, "--reason", "a stolen card"); v["refused"] != "7.000000000" ||
		v["in_review"] != "0.000000000" {
		t.Error(v)
	}
	if b := p.json("payout", "show")["balance"].(map[string]any); b["payable"] != "7.000000000" ||
		b["in_review"] != "0.000000000" {
		t.Error(b)
	}
}
