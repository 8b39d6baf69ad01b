package cli

import (
	"strings"
	"testing"
)

// At a prompt the payer reads what is charged with tax before it is, and with --price pays nothing.
func TestTopUpSaysItsTax(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if out := p.ok("billing", "topup", "5"); strings.Contains(out, "VAT") {
		t.Errorf("%q", out)
	}
	if _, err := p.db.Pool.Exec(t.Context(), "INSERT INTO org_legal (org_id, name, address, country) SELECT id, 'A', "+
		"'{b}', 'DE' FROM org"); err != nil {
		t.Fatal(err)
	}
	if out := p.ok("billing", "topup", "100", "--price"); !strings.Contains(out, "VAT 19 %") ||
		!strings.Contains(out, "119.00") {
		t.Errorf("%q", out)
	}
	r := p.run("", "billing", "topup", "100")
	if r.code != 0 || !strings.Contains(r.errs, "VAT 19 % 19.00: 119.00 USD are charged.") ||
		!strings.Contains(r.out, "119.00 with VAT 19 %") {
		t.Errorf("%+v", r)
	}
	if b := p.json("billing", "balance"); b["available"] != "105.000000000" {
		t.Error(b)
	}
	if out := p.ok("billing", "refund", "100"); !strings.Contains(out, "19.00") {
		t.Errorf("%q", out)
	}
}
