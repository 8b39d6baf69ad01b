package cli

import (
	"strings"
	"testing"
)

func TestMembersByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("bob@example.com")
	if r := p.run("correct horse battery\n", "login", p.url, "--sign-up", "ada@example.com", "--profile",
		"ada"); r.code != 0 {
		t.Fatal(r.errs)
	}
	if _, err := p.db.Pool.Exec(t.Context(), "UPDATE app_user SET email_verified_at = now()"); err != nil {
		t.Fatal(err)
	}
	v := p.json("org", "members", "invite", "bob@example.com", "--role", "viewer")
	if out := p.ok("org", "members", "invitations"); !strings.Contains(out, "bob@example.com") {
		t.Error(out)
	}
	if out := p.ok("org", "list", "--profile", "default"); !strings.Contains(out, "muster org join "+v["id"].(string)) {
		t.Error(out)
	}
	p.ok("org", "join", v["id"].(string), "--profile", "default")
	if out := p.ok("org", "members", "list"); !strings.Contains(out, "bob@example.com") ||
		!strings.Contains(out, "viewer") {
		t.Error(out)
	}
	p.ok("org", "members", "role", "bob@example.com", "billing")
	if r := p.run("", "org", "members", "role", "ada@example.com", "viewer"); r.code != 1 ||
		!strings.Contains(r.errs, "needs an owner") {
		t.Errorf("the last owner: %d %s", r.code, r.errs)
	}
	p.ok("org", "members", "remove", "bob@example.com")
	if r := p.run("", "org", "members", "remove", "bob@example.com"); r.code != 3 {
		t.Errorf("again: %d %s", r.code, r.errs)
	}
	if r := p.run("", "org", "leave"); r.code != 1 {
		t.Errorf("the last owner leaves: %d %s", r.code, r.errs)
	}
}
