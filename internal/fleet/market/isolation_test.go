package market

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/client"
)

// A spec that requires an enforced disk limit or a runtime is placed only where it is available. If no host has it, the
// explanation names it, and proposes to leave it out.
func TestOnlyHostsThatHaveWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	plain, limited, gvisor, both := newHost("plain", "X", 4, 1_000_000), newHost("limited", "X", 4, 2_000_000),
		newHost("gvisor", "X", 4, 3_000_000), newHost("both", "X", 4, 4_000_000)
	limited.DiskLimited, both.DiskLimited = true, true
	plain.Runtimes, limited.Runtimes, gvisor.Runtimes, both.Runtimes = "runc", "runc", "runc runsc", "runc runsc"
	all := snapshotOf(plain, limited, gvisor, both)
	for _, c := range []struct {
		change func(*Spec)
		want   []string
	}{
		{func(*Spec) {}, []string{"plain"}},
		{func(s *Spec) { s.Runtime = "runc" }, []string{"plain"}},
		{func(s *Spec) { s.DiskLimited = true }, []string{"limited"}},
		{func(s *Spec) { s.Runtime = "runsc" }, []string{"gvisor"}},
		{func(s *Spec) { s.Runtime, s.Nodes = "runsc", 2 }, []string{"gvisor", "both"}},
		{func(s *Spec) { s.Runtime, s.DiskLimited = "runsc", true }, []string{"both"}},
		{func(s *Spec) { s.Runtime, s.DiskLimited, s.Nodes = "runsc", true, 2 }, nil},
	} {
		p, why := Place(all, mustRequest(t, c.change))
		if got := hostNames(all, p); !slices.Equal(got, c.want) {
			t.Errorf("%v %+v, want %v", got, why, c.want)
		}
		for _, n := range p.Nodes {
			if h := all.Host(n.Host); h.refuses(n, 0) != "" {
				t.Errorf("%s: %s", h.Name, h.refuses(n, 0))
			}
		}
	}
	a := mustRequest(t, func(s *Spec) { s.Runtime, s.DiskLimited = "runsc", true })
	_, why := Place(snapshotOf(plain, limited), a)
	if want := []client.Exclusion{
		{Constraint: "disk_limited: the host holds nodes to their disk_gb", Excluded: 1, Left: 1},
		{Constraint: "runtime = runsc", Excluded: 1, Left: 0},
	}; !slices.Equal(why.Exclusions, want) {
		t.Errorf("%+v", why)
	}
	if r := Relax(snapshotOf(plain, limited), a); len(r) != 1 || r[0].Field != "runtime" || r[0].Value != "runc" ||
		r[0].Rate != 2_000_000 {
		t.Errorf("%+v", r)
	}
	if r := Relax(snapshotOf(plain, gvisor), a); len(r) != 1 || r[0].Field != "disk_limited" || r[0].Value != false ||
		r[0].Rate != 3_000_000 {
		t.Errorf("%+v", r)
	}
}
