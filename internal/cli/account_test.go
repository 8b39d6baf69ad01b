package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
)

func TestPasswordAndSessionsByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	acc := account.New(p.db, account.Config{HashMemoryKiB: 64})
	signIn := func(password string) error {
		_, _, err := acc.Sessions.SignIn(t.Context(), account.SignIn{
			Email:     "ada@example.com",
			Password:  password,
			UserAgent: "Firefox",
			Address:   "203.0.113.7",
		})
		return err
	}
	if out := p.ok("account", "sessions", "list"); !strings.Contains(out, "not signed in in any browser") {
		t.Error(out)
	}
	for range 3 {
		if err := signIn("correct horse battery"); err != nil {
			t.Fatal(err)
		}
	}
	out := p.ok("account", "sessions", "list")
	if !strings.Contains(out, "Firefox") || !strings.Contains(out, "203.0.113.7") {
		t.Error(out)
	}
	first := strings.Fields(strings.Split(out, "\n")[1])[0]
	p.ok("account", "sessions", "end", first)
	if out := p.ok("account", "sessions", "list"); strings.Contains(out, first) || strings.Count(out, "Firefox") != 2 {
		t.Error(out)
	}
	for _, wrong := range [][]string{{}, {first, "--all"}, {"me"}} {
		if r := p.run("", append([]string{"account", "sessions", "end"}, wrong...)...); r.code != 2 ||
			!strings.Contains(r.errs, "sessions list") {
			t.Errorf("%v: exit %d %s", wrong, r.code, r.errs)
		}
	}
	if r := p.run("", "account", "sessions", "end", first); r.code != 3 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	p.ok("account", "sessions", "end", "--all")
	if out := p.ok("account", "sessions", "list"); strings.Contains(out, "Firefox") {
		t.Error(out)
	}

	// The password comes from standard input only, and may begin and end with spaces.
	if r := p.run("", "account", "password"); r.code != 2 || !strings.Contains(r.errs, "standard input") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("wrong\n another fine password \n", "account", "password"); r.code != 2 ||
		!strings.Contains(r.errs, "old_password") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "account", "password", "--password", "x"); r.code != 2 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("correct horse battery\r\n another fine password \n", "account", "password"); r.code != 0 ||
		strings.Contains(r.out+r.errs, "fine password") {
		t.Fatalf("exit %d %s%s", r.code, r.out, r.errs)
	}
	if signIn("correct horse battery") == nil || signIn(" another fine password ") != nil {
		t.Error("the password is not the new one")
	}
	p.ok("account", "sessions", "list") // the token still works
}

func TestTheTimeZoneByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if out := p.ok("org", "zone"); out != "UTC\n" {
		t.Error(out)
	}
	if r := p.run("", "org", "zone", "Berlin"); r.code != 2 || !strings.Contains(r.errs, "Europe/Berlin") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if out := p.ok("org", "zone", "Pacific/Kiritimati"); out != "Pacific/Kiritimati\n" {
		t.Error(out)
	}
	if s := p.json("statement"); s["zone"] != "Pacific/Kiritimati" {
		t.Error(s["zone"])
	}
}
