package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

func TestAdmin_OrganisationsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	var org id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT id FROM org").Scan(&org); err != nil {
		t.Fatal(err)
	}
	commands := []string{"todo", "orgs", "org " + org.String(), "payouts list", "payouts due", "audit", "promo uses",
		"set " + org.String() + " --fee-ppm 1 --reason x",
		"payouts pay " + org.String() + " --reason x", "payouts run --reason x",
		"sending show", "sending pause --reason x", "sending resume --reason x"}
	for _, cmd := range commands {
		if r := p.run("", append([]string{"admin"}, strings.Fields(cmd)...)...); r.code != 1 {
			t.Errorf("a renter may %s: exit %d %s", cmd, r.code, r.out)
		}
	}
	p.admin("ada@example.com")
	if out := p.ok("admin", "totals"); !strings.Contains(out, "sign-ups") || !strings.Contains(out, "0 rented") {
		t.Errorf("%s", out)
	}
	if out := p.ok("admin", "attention"); !strings.Contains(out, "Nothing needs you now.") {
		t.Error(out)
	}
	for _, words := range []string{"", "ada@", org.String()} {
		if out := p.ok("admin", "orgs", words); !strings.Contains(out, org.String()) ||
			!strings.Contains(out, "ada@example.com") {
			t.Errorf("%q: %s", words, out)
		}
	}
	if out := p.ok("admin", "orgs", "--operators"); strings.Contains(out, org.String()) {
		t.Error(out)
	}
	for _, wrong := range []string{"org x", "set " + org.String() + " --fee-ppm 5", "set " + org.String() + " --reason x",
		"payouts pay x --reason x", "payouts pay " + org.String(), "payouts run", "sending pause", "audit --org x"} {
		if r := p.run("", append([]string{"admin"}, strings.Fields(wrong)...)...); r.code != 2 {
			t.Errorf("%s: exit %d %s", wrong, r.code, r.errs)
		}
	}
	if out := p.ok("admin", "sending", "pause", "--reason", "a restore"); !strings.Contains(out, "paused") ||
		!strings.Contains(out, "a restore") {
		t.Error(out)
	}
	if v := p.json("admin", "sending", "show"); v["paused"] != true {
		t.Error(v)
	}
	if out := p.ok("admin", "sending", "resume", "--reason", "checked"); !strings.Contains(out, "Money is sent.") {
		t.Error(out)
	}
	if out := p.ok("admin", "set", org.String(), "--fee-ppm", "45000", "--reason", "a large fleet"); !strings.Contains(out,
		"45000 ppm") {
		t.Error(out)
	}
	if out := p.ok("admin", "org", org.String()); !strings.Contains(out, "45000 ppm") ||
		!strings.Contains(out, "ada@example.com") {
		t.Error(out)
	}
	if v := p.json("admin", "org", org.String()); v["fee_ppm"] != 45000.0 || v["host_list"] == nil {
		t.Error(v)
	}
	if out := p.ok("admin", "audit", "large", "fleet"); !strings.Contains(out, "operator.fee") ||
		!strings.Contains(out, "fee_ppm=45000 reason=a large fleet") {
		t.Error(out)
	}
	if r := p.run("", "admin", "payouts", "pay", org.String(), "--reason", "asked for"); r.code != 3 ||
		!strings.Contains(r.errs, "no payout account") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if out := p.ok("admin", "payouts", "run", "--reason", "asked for"); !strings.Contains(out, "0 payouts were made") {
		t.Error(out)
	}
	p.ok("admin", "payouts", "due")
	p.ok("admin", "payouts", "list", "--org", org.String())
	p.ok("admin", "promo", "create", "welcome-2027", "5", "--reason", "a fair")
	p.ok("billing", "redeem", "welcome-2027")
	if out := p.ok("admin", "promo", "uses", "welcome-2027"); !strings.Contains(out, org.String()) {
		t.Error(out)
	}
}
