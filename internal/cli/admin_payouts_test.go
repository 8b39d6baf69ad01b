package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// A reversal that Stripe refuses is read, with the reason, from both lists, and may be asked for again.
func TestARefusedReversalByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	paid := id.New[id.Payout]()
	if _, err := p.db.Pool.Exec(t.Context(), `INSERT INTO payout (id, org_id, stripe_account, amount, currency, state,
		stripe_transfer)
		SELECT $1, id, 'acct_x', 25000000000, 'USD', 'paid', 'tr_unknown' FROM org`, paid); err != nil {
		t.Fatal(err)
	}
	if r := p.run("", "admin", "payouts", "reverse", paid.String(), "--reason", "mine"); r.code != 1 {
		t.Errorf("a renter takes a payout back: exit %d %s", r.code, r.out)
	}
	p.admin("ada@example.com")
	for _, wrong := range [][]string{{"x", "--reason", "x"}, {paid.String()}, {paid.String(), "--reason", "x", "--amount",
		"-1"}, {paid.String(), "--reason", "x", "--amount", "25.01"}} {
		if r := p.run("", append([]string{"admin", "payouts", "reverse"}, wrong...)...); r.code != 2 {
			t.Errorf("%v: exit %d %s", wrong, r.code, r.errs)
		}
	}
	for range 2 {
		p.ok("admin", "payouts", "reverse", paid.String(), "--amount", "5", "--reason", "sent twice")
		for _, list := range [][]string{{"admin", "payouts", "list"}, {"payout", "list"}} {
			if out := p.ok(list...); !strings.Contains(out, "Stripe refused to take 5.00 back: ") {
				t.Errorf("%v: %s", list, out)
			}
		}
	}
	if r := p.json("payout",
		"list")["items"].([]any)[0].(map[string]any)["reversal"].(map[string]any); r["state"] != "refused" ||
		r["amount"] != "5.000000000" || r["failure"] == "" {
		t.Error(r)
	}
}
