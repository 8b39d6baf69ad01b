package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
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
	var h id.Host
	var org id.Org
	if err := p.db.Pool.QueryRow(t.Context(), "SELECT id, org_id FROM host").Scan(&h, &org); err != nil {
		t.Fatal(err)
	}
	cluster, _ := fleettest.Lease(t, p.db, h, org)
	if _, err := p.db.Pool.Exec(t.Context(), "INSERT INTO gang_strike (host_id, cluster_id, kind, at) VALUES ($1, $2, "+
		"'doubt', clock_timestamp())", h, cluster); err != nil {
		t.Fatal(err)
	}
	if out := p.ok("admin", "gangs"); !strings.Contains(out, host) || !strings.Contains(out, "doubt") {
		t.Error(out)
	}
	if r := p.run("", "admin", "gangs", "--days", "0"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
}
