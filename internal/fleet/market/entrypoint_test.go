package market

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

// A spec with an entry point or a user is placed only where the agent can replace an image's: an older one would ignore
// it.
func TestPlace_EntrypointOnlyWhereTheAgentRunsIt(t *testing.T) {
	t.Parallel()
	older, newer := newHost("older", "X", 4, 1_000_000), newHost("newer", "X", 4, 2_000_000)
	newer.Entrypoint, newer.Users = true, true
	all := snapshotOf(older, newer)
	with := func(s *Spec) { s.Entrypoint = []string{"bash", "-c"} }
	for _, c := range []struct {
		change func(*Spec)
		want   []string
	}{
		{func(*Spec) {}, []string{"older"}},
		{with, []string{"newer"}},
		{func(s *Spec) { s.User = "root" }, []string{"newer"}},
		{func(s *Spec) { with(s); s.Nodes = 2 }, nil},
	} {
		p, why := Place(all, mustRequest(t, c.change))
		if got := hostNames(all, p); !slices.Equal(got, c.want) {
			t.Errorf("%v %+v, want %v", got, why, c.want)
		}
	}
	_, why := Place(snapshotOf(older), mustRequest(t, with))
	if want := []client.Exclusion{{
		Constraint: "entrypoint: the host's agent can replace an image's entry point", Excluded: 1,
	}}; !slices.Equal(why.Exclusions, want) {
		t.Errorf("%+v", why)
	}
}

// An entry point that is named when a quote is rented needs the quote's hosts to run it.
func TestRuns_EntrypointOnAQuotedHost(t *testing.T) {
	t.Parallel()
	older, newer := newHost("older", "X", 4, 1_000_000), newHost("newer", "X", 4, 2_000_000)
	newer.Entrypoint = true
	for _, c := range []struct {
		on      *Host
		words   []string
		refused bool
	}{{older, nil, false}, {older, []string{"x"}, true}, {newer, []string{"x"}, false}} {
		p, _ := Place(snapshotOf(c.on), mustRequest(t, func(*Spec) {}))
		err := p.Runs(Spec{Entrypoint: c.words})
		if f := fault.From(err); (f != nil) != c.refused || f != nil && f.Fields[0].Location != "entrypoint" {
			t.Errorf("%s, %q: %v", c.on.Name, c.words, err)
		}
	}
}
