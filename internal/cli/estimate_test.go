package cli

import (
	"strings"
	"testing"
)

func TestEstimateByCommandNeedsNoLogin(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("operator@example.com")
	p.sell(8, "2.00")
	p.ok("logout")
	if r := p.run("", "estimate"); r.code == 0 || !strings.Contains(r.errs, "MUSTER_SERVER") {
		t.Errorf("no platform is named: exit %d %s", r.code, r.errs)
	}
	out := p.ok("estimate", "--server", p.url, "--gpus", "4", "--gpu", "h100")
	if !strings.Contains(out, "8.00") || !strings.Contains(out, "Nothing is held") {
		t.Error(out)
	}
	if r := p.run("", "estimate", "--server", p.url, "--nodes", "9"); r.code != 4 ||
		!strings.Contains(r.errs, "excluded") {
		t.Errorf("nothing fits: exit %d %s", r.code, r.errs)
	}
}
