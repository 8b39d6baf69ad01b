package cli

import (
	"strings"
	"testing"
)

func TestGangsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("", "admin", "gangs"); r.code != 1 {
		t.Errorf("a renter reads it: exit %d %s", r.code, r.out)
	}
	p.admin("ada@example.com")
	out := p.ok("admin", "gangs", "--days", "7")
	for _, want := range []string{"No strikes.", "No pair is kept apart.", "No relief was paid.",
		"All time of renters was billed."} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	host := p.sell(1, "2.00")
	if _, err := p.db.Pool.Exec(t.Context(), "INSERT INTO gang_strike (host_id, cluster_id, kind, at) SELECT id, "+
		"gen_random_uuid(), 'doubt', clock_timestamp() FROM host"); err != nil {
		t.Fatal(err)
	}
	if out := p.ok("admin", "gangs"); !strings.Contains(out, host) || !strings.Contains(out, "doubt") {
		t.Error(out)
	}
	if r := p.run("", "admin", "gangs", "--days", "0"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
}
