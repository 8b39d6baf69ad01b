package cli

import (
	"strings"
	"testing"
)

func TestTheTrailByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.ok("org", "legal", "--name", "Ada GmbH", "--address", "Unter den Linden 1", "--address", "10117 Berlin", "--country",
		"DE")
	if out := p.ok("org", "audit", "--action", "org"); !strings.Contains(out, "org.legal_set") ||
		!strings.Contains(out, "ada@example.com") || !strings.Contains(out, "127.0.0.1") {
		t.Error(out)
	}
	if v := p.json("org", "audit", "ada@", "--limit", "1"); len(v["items"].([]any)) != 1 {
		t.Error(v)
	}
	if out := p.ok("org", "audit", "nothing-like-it"); strings.Contains(out, "org.") {
		t.Error(out)
	}
}
