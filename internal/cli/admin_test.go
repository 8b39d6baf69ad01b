package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
)

// admin makes an admin of the user who is logged in, and logs in with a token that has the scope.
func (p *testPlatform) admin(email string) {
	p.t.Helper()
	accounts := account.New(p.db, account.Config{HashMemoryKiB: 64})
	if err := accounts.SetAdmin(p.t.Context(), email, true); err != nil {
		p.t.Fatal(err)
	}
	_, who, err := accounts.Sessions.SignIn(p.t.Context(), account.SignIn{Email: email, Password: "correct horse battery"})
	if err != nil {
		p.t.Fatal(err)
	}
	_, token, err := accounts.Tokens.Issue(p.t.Context(), who, account.NewToken{
		Name:   "books",
		Scopes: append(account.Scopes(), account.ScopeAdmin),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if r := p.run(token+"\n", "login", p.url); r.code != 0 {
		p.t.Fatalf("exit %d: %s", r.code, r.errs)
	}
}

func TestTheBooksByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	for _, cmd := range []string{"books", "search x", "suspense", "dead-letters", "store", "quarantine", "frozen"} {
		if r := p.run("", append([]string{"admin"}, strings.Fields(cmd)...)...); r.code != 1 {
			t.Errorf("a renter may %s: exit %d %s", cmd, r.code, r.out)
		}
	}
	p.admin("ada@example.com")
	p.ok("billing", "topup", "25")
	if out := p.ok("admin", "books"); !strings.Contains(out, "The ledger balances.") ||
		!strings.Contains(out, "renter_wallet") ||
		!strings.Contains(out, "25.000000000") {
		t.Error(out)
	}
	if v := p.json("admin", "books"); v["balanced"] != true {
		t.Error(v)
	}
	p.ok("admin", "suspense")
	p.ok("admin", "dead-letters")
	p.ok("admin", "store")
	var org id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&org); err != nil {
		t.Fatal(err)
	}
	if out := p.ok("admin", "search", org.String()); !strings.Contains(out, "topup:") ||
		!strings.Contains(out, "1 entries") {
		t.Error(out)
	}
	topUp := p.json("admin", "search", org.String())["items"].([]any)[0].(map[string]any)["id"].(string)
	if r := p.run("", "admin", "compensate", topUp, "--reason", "x"); r.code != 1 ||
		!strings.Contains(r.errs, "only charges for usage") {
		t.Errorf("a top-up is given back as a charge: exit %d %s", r.code, r.errs)
	}
	for _, wrong := range [][]string{{topUp}, {"tx_x", "--reason", "x"}, {topUp, "--reason", "x", "--amount", "-1"},
		{topUp, "--reason", "x", "--amount", "0.0000000001"}} {
		if r := p.run("", append([]string{"admin", "compensate"}, wrong...)...); r.code != 2 {
			t.Errorf("%v: exit %d %s", wrong, r.code, r.errs)
		}
	}

	lease := meteringtest.Frozen(t, p.db, org, org, "USD").String()
	if out := p.ok("admin", "frozen"); !strings.Contains(out, lease) || !strings.Contains(out, "stands") {
		t.Error(out)
	}
	if out := p.ok("admin", "quarantine"); !strings.Contains(out, lease) || !strings.Contains(out, "conflict") {
		t.Error(out)
	}
	if r := p.run("", "admin", "unfreeze", lease); r.code != 2 || !strings.Contains(r.errs, "--reason") {
		t.Errorf("without a reason: exit %d %s", r.code, r.errs)
	}
	p.ok("admin", "unfreeze", lease, "--reason", "restored from a backup")
	if out := p.ok("admin", "frozen"); !strings.Contains(out, "Frozen: 0 leases.") {
		t.Error(out)
	}
	if r := p.run("", "admin", "unfreeze", lease, "--reason", "again"); r.code != 1 ||
		!strings.Contains(r.errs, "not frozen") {
		t.Errorf("again: exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "admin", "unfreeze", id.New[id.Lease]().String(), "--reason", "x"); r.code != 3 {
		t.Errorf("no such lease: exit %d %s", r.code, r.errs)
	}
}
