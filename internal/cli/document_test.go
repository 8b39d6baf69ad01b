package cli

import (
	"strings"
	"testing"
	"time"
)

func TestDocumentsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if out := p.ok("document", "list"); !strings.Contains(out, "No documents") {
		t.Error(out)
	}
	p.ok("org", "legal", "--name", "Ada GmbH", "--address", "b", "--country", "DE")
	p.ok("org", "zone", "Pacific/Kiritimati")
	if r := p.run("", "billing", "topup", "100"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	p.ok("billing", "refund", "50")
	year := time.Now().UTC().Format("2006")
	receipt, credit := "R-"+year+"-000001", "C-"+year+"-000001"
	out := p.ok("document", "list", "--year", year)
	for _, want := range []string{receipt, credit, "Receipt", "Credit note", "Ada GmbH", "119.00", "59.50"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := p.ok("document", "list", "--series", "receipt"); strings.Contains(out, credit+" ") {
		t.Error(out)
	}
	out = p.ok("document", "show", receipt)
	for _, want := range []string{receipt, "Pacific/Kiritimati", "Corrected by " + credit, "Ada GmbH", "119.00",
		"VAT 19 %", p.url + "/documents/" + receipt} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := p.ok("document", "show", credit); !strings.Contains(out, "Refund of "+receipt) ||
		!strings.Contains(out, "59.50") {
		t.Error(out)
	}
	if r := p.run("", "document", "show", "R-1999-000001"); r.code != 3 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "document", "list", "--series", "x"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "admin", "document", "list"); r.code != 1 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	p.admin("ada@example.com")
	if out := p.ok("admin", "document", "list"); !strings.Contains(out, credit) || !strings.Contains(out, "org_") {
		t.Error(out)
	}
	p.ok("admin", "document", "show", credit)
	if r := p.run("", "admin", "document", "list", "--org", "x"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
}
