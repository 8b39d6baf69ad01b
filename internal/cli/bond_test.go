package cli

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

func TestTheBondByCommand(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	if r := p.run("", "host", "bond", "deposit", "25"); r.code != 5 {
		t.Errorf("exit %d %s", r.code, r.errs)
	}
	if r := p.run("", "billing", "topup", "100"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if out := p.ok("host", "bond", "deposit", "25"); !strings.Contains(out, "25.00 USD of your bond are free") {
		t.Error(out)
	}
	if out := p.ok("host", "bond", "withdraw", "5"); !strings.Contains(out, "5.00 USD went back to your balance") {
		t.Error(out)
	}
	out := p.ok("host", "bond", "set", "--retain", "10", "--limit", "7.5", "--accept-unbonded")
	for _, want := range []string{"20.00 USD", "10 %", "7.50 USD", "yes"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := p.ok("host", "bond", "liability", "--nodes", "8", "--price", "20"); !strings.Contains(out, "at most 11.66") {
		t.Error(out)
	}
	for arg, code := range map[string]int{"x": 2, id.New[id.Cluster]().String(): 3} {
		if r := p.run("", "host", "bond", "suspensions", arg); r.code != code {
			t.Errorf("%s: exit %d %s", arg, r.code, r.errs)
		}
	}
}
