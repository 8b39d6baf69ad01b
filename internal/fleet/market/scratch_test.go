package market

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
)

// Scratch is placed where there is enough of it for all nodes of the host, and each placed node takes its part. If no
// host has enough, the explanation names it and proposes the largest available size.
func TestScratchIsPlacedWhereItIs(t *testing.T) {
	t.Parallel()
	plain, some, much := newHost("plain", "X", 4, 1_000_000), newHost("some", "X", 4, 2_000_000),
		newHost("much", "X", 4, 3_000_000)
	some.ScratchFreeGB, much.ScratchFreeGB = 100, 1000
	all := snapshotOf(plain, some, much)
	for _, c := range []struct {
		change func(*Spec)
		want   []string
	}{
		{func(*Spec) {}, []string{"plain"}},
		{func(s *Spec) { s.ScratchGB = 100 }, []string{"some"}},
		{func(s *Spec) { s.ScratchGB = 101 }, []string{"much"}},
		{func(s *Spec) { s.ScratchGB, s.Nodes = 100, 2 }, []string{"some", "much"}},
		{func(s *Spec) { s.ScratchGB, s.Nodes, s.Network.Scope = 60, 2, ScopeHost }, []string{"much", "much"}},
		{func(s *Spec) { s.ScratchGB = 1001 }, nil},
		{func(s *Spec) { s.ScratchGB, s.Nodes, s.Network.Scope = 501, 2, ScopeHost }, nil},
	} {
		a := mustRequest(t, c.change)
		p, why := Place(all, a)
		if got := hostNames(all, p); !slices.Equal(got, c.want) {
			t.Errorf("%v %+v, want %v", got, why, c.want)
		}
		left := map[string]*Host{}
		for _, n := range p.Nodes {
			h := all.Host(n.Host)
			if l := left[h.Name]; l != nil {
				h = l
			}
			if why := h.refuses(n, 0); why != "" {
				t.Errorf("%s: %s", h.Name, why)
			}
			left[h.Name] = h.without(n)
			if n.ScratchGB != a.ScratchGB || (a.ScratchGB > 0) != strings.Contains(n.Lines[1].Text, "GB scratch") {
				t.Errorf("%+v", n)
			}
		}
	}
	a := mustRequest(t, func(s *Spec) { s.ScratchGB = 1001 })
	_, why := Place(snapshotOf(plain, some), a)
	if want := []client.Exclusion{{Constraint: "scratch_gb = 1001", Excluded: 2}}; !slices.Equal(why.Exclusions, want) {
		t.Errorf("%+v", why)
	}
	for _, c := range []struct {
		hosts *Snapshot
		value int64
	}{{all, 1000}, {snapshotOf(plain, some), 100}, {snapshotOf(plain), 0}} {
		if r := Relax(c.hosts, a); len(r) != 1 || r[0].Field != "scratch_gb" || r[0].Value != c.value {
			t.Errorf("%+v, want %d", r, c.value)
		}
	}
	p, _ := Place(all, mustRequest(t, func(s *Spec) { s.ScratchGB = 100 }))
	taken := some.without(p.Nodes[0])
	if why := taken.refuses(p.Nodes[0], 0); why != "its scratch was taken" {
		t.Errorf("%q", why)
	}
}
