package cli

import (
	"strings"
	"testing"
)

// An empty list is a sentence, not a row of headings.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	for _, list := range []string{"budget list", "cluster list", "cluster list --state running", "host list", "ssh-key " +
		"list",
		"billing topups", "billing cards list", "billing transactions", "document list", "org members invitations",
		"notice list", "webhook list", "bucket list", "shared list"} {
		out := p.ok(strings.Fields(list)...)
		if !strings.HasPrefix(out, "No ") || strings.Count(out, "\n") != 1 {
			t.Errorf("muster %s:\n%s", list, out)
		}
	}
	if out := p.ok("cluster", "list", "--state", "running", "--query", "train"); out !=
		"No cluster that matches \"train\" is running. List all: muster cluster list\n" {
		t.Errorf("a filter that nothing passes: %q", out)
	}
}

// The line under a page is the command that lists the next one, with the flags of this one.
func TestNextPageIsACommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "25")
	p.ok("billing", "topup", "30")
	out := p.ok("billing", "transactions", "--limit", "1", "-o", "wide")
	_, command, ok := strings.Cut(strings.TrimSpace(out), "More: muster ")
	if !ok || !strings.HasPrefix(command, "billing transactions ") || !strings.Contains(command, "--output wide") {
		t.Fatalf("no next page:\n%s", out)
	}
	if next := p.ok(strings.Fields(command)...); !strings.Contains(next, "25.00") || strings.Contains(next, "30.00") {
		t.Errorf("muster %s:\n%s", command, next)
	}
}

func TestBudgetSet_NamesTheFlag(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("", "budget", "set", "100"); r.code != 2 || !strings.Contains(r.errs, "muster budget set --cap 100") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "budget", "list", "all"); r.code != 2 || !strings.Contains(r.errs, "no arguments, and was given "+
		"all") {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
}
