package cli

import (
	"strings"
	"testing"
	"time"
)

func TestLegalDetailsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if out := p.ok("org", "legal"); !strings.Contains(out, "no legal details") {
		t.Error(out)
	}
	set := []string{"org", "legal", "--name", "Ada GmbH", "--address", "Unter den Linden 1", "--address", "10117 Berlin",
		"--country", "de", "--vat-id"}
	r := p.run("", append(set, "DE12")...)
	if r.code != 2 || !strings.Contains(r.errs, "is not a VAT id of DE, which looks like DE") { // as on the page
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "org", "legal", "--country", "XX", "--name", " "); r.code != 2 ||
		!strings.Contains(r.errs, "ISO 3166-1") || !strings.Contains(r.errs, "address") || !strings.Contains(r.errs, "name") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if out := p.ok(append(set, "de 136 695 976")...); !strings.Contains(out, "DE136695976") ||
		!strings.Contains(out, "Unter den Linden 1, 10117 Berlin") {
		t.Error(out)
	}
	p.ok("org", "legal", "--name", "Ada AG") // the rest stays
	if l := p.json("org", "legal"); l["name"] != "Ada AG" || l["vat_id"] != "DE136695976" || l["country"] != "DE" ||
		len(l["address"].([]any)) != 2 {
		t.Error(l)
	}
	p.ok("org", "legal", "--vat-id", "")
	if l := p.json("org", "legal"); l["vat_id"] != "" || l["name"] != "Ada AG" {
		t.Error(l)
	}
	if r := p.run("", "org", "legal", "--erase", "--name", "x"); r.code == 0 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if out := p.ok("org", "legal", "--erase"); !strings.Contains(out, "no legal details") {
		t.Error(out)
	}
}

// The taxes of a period by command are the ledger's.
func TestTheTaxReportByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("", "admin", "tax", "2026-Q1"); r.code != 1 {
		t.Errorf("a renter reads it: exit %d %s", r.code, r.out)
	}
	p.admin("ada@example.com")
	p.ok("org", "legal", "--name", "Ada", "--address", "b", "--country", "DE")
	if r := p.run("", "billing", "topup", "100"); r.code != 0 { // it says the tax on standard error
		t.Fatalf("%+v", r)
	}
	p.ok("billing", "refund", "50")
	year := time.Now().UTC().Format("2006")
	out := p.ok("admin", "tax", year)
	for _, want := range []string{"DE", "VAT 19 %", "100.00", "19.00", "9.50"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	if v := p.json("admin", "tax", year); v["tax"] != "9.500000000" || v["payable"] != "9.500000000" ||
		v["book"] != v["payable"] {
		t.Error(v)
	}
	if r := p.run("", "admin", "tax", year+"-13"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	// A ledger that says otherwise than the book of taxes is an error.
	if _, err := p.db.Pool.Exec(t.Context(), "ALTER TABLE tax_entry DISABLE TRIGGER tax_entry_immutable; UPDATE "+
		"tax_entry SET tax = tax - 1 WHERE tax > 0"); err != nil {
		t.Fatal(err)
	}
	if r := p.run("", "admin", "tax", year); r.code != 1 || !strings.Contains(r.errs, "the ledger's tax_payable") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
}

// A receipt by command is the one of the page: with the parties of then.
func TestAReceiptByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.ok("org", "legal", "--name", "Ada GmbH", "--address", "b", "--country", "DE")
	if r := p.run("", "billing", "topup", "100"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	topup := p.json("billing", "topups")["items"].([]any)[0].(map[string]any)["id"].(string)
	p.ok("org", "legal", "--name", "Another AG")
	p.ok("billing", "refund", "50")
	out := p.ok("billing", "receipt", topup)
	for _, want := range []string{"R-", "Ada GmbH, b, DE", "119.00", "VAT 19 %", "Given back", "59.50"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if r := p.json("billing", "receipt", topup); r["total"] != "119.000000000" || r["left"] != "59.500000000" ||
		r["customer"].(map[string]any)["name"] != "Ada GmbH" {
		t.Error(r)
	}
	if r := p.run("", "billing", "receipt", "x"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
}
