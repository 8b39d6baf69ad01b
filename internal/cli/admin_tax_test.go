package cli

import (
	"strings"
	"testing"
)

func TestRemitTaxByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.admin("ada@example.com")
	if _, err := p.db.Pool.Exec(t.Context(), `INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason,
		name, ppm, net, tax, currency, created_at)
		SELECT 'old' || c, m.org_id, 'topup', '', 'DE', '', 'home', 'VAT', 190000, 100000000000, 19000000000, c, '2025-02-03'
		FROM membership m, unnest(ARRAY['EUR', 'USD']) c`); err != nil {
		t.Fatal(err)
	}
	remit := []string{"admin", "remit-tax", "2025-Q1", "DE", "12.34"}
	if r := p.run("", remit...); r.code != 2 {
		t.Errorf("no reason: exit %d %s", r.code, r.errs)
	}
	if out := p.ok(append(remit, "--reason", "transfer 17")...); !strings.Contains(out, "12.34") ||
		!strings.Contains(out, "6.66") {
		t.Error(out)
	}
	if r := p.run("", append(remit, "--reason", "again")...); r.code == 0 || !strings.Contains(r.errs, "6.66") {
		t.Errorf("more than is owed: exit %d %s", r.code, r.errs)
	}
}
