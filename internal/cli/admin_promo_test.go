package cli

import (
	"strings"
	"testing"
)

func TestPromoCodesByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	for _, cmd := range []string{"list", "create WELCOME-2027 5 --reason x", "disable WELCOME-2027 --reason x"} {
		if r := p.run("", append([]string{"admin", "promo"}, strings.Fields(cmd)...)...); r.code != 1 {
			t.Errorf("a renter may %s: exit %d %s", cmd, r.code, r.out)
		}
	}
	p.admin("ada@example.com")
	if r := p.run("", "admin", "promo", "create", "WELCOME-2027", "five"); r.code != 2 ||
		!strings.Contains(r.errs, "AMOUNT") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "admin", "promo", "create", "welcome-2027", "5"); r.code != 2 ||
		!strings.Contains(r.errs, "--reason") {
		t.Errorf("without a reason: exit %d %s", r.code, r.errs)
	}
	p.ok("admin", "promo", "create", "welcome-2027", "5", "--uses", "3", "--reason", "a fair")
	if out := p.ok("admin", "promo", "list"); !strings.Contains(out, "WELCOME-2027") || !strings.Contains(out, "0 of 3") ||
		!strings.Contains(out, "never") {
		t.Error(out)
	}
	if out := p.ok("admin", "promo", "disable", "welcome-2027", "--reason", "posted in public"); !strings.Contains(out,
		"WELCOME-2027 is over") {
		t.Error(out)
	}
	if out := p.ok("admin", "promo", "list"); strings.Contains(out, "never") {
		t.Error(out)
	}
	if r := p.run("", "admin", "promo", "disable", "WELCOME-2027", "--reason", "again"); r.code != 1 ||
		!strings.Contains(r.errs, "ended already") {
		t.Errorf("again: exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "admin", "promo", "disable", "no/such code", "--reason", "x"); r.code != 3 {
		t.Errorf("no such code: exit %d %s", r.code, r.errs)
	}
}
