package offers

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// fillAgain fills the form with the spec of one of the organisation's clusters or quotes.
func (s *Pages) fillAgain(v *page.Visit, m *Market, text string) error {
	spec, name, err := s.specFrom(v, text)
	if err != nil {
		return err
	}
	m.Query, m.Spec = spec.GPU, asTyped(spec)
	m.Spec.Env, m.Spec.From = envLines(spec), text
	m.Spec.Note = "This is the spec of " + name + "."
	if len(spec.Env) > 0 {
		m.Spec.Note += " Values of its environment are secret: enter them again."
	}
	return nil
}

// specFrom returns the spec of a cluster or a quote, and what to call it.
func (s *Pages) specFrom(v *page.Visit, text string) (market.Spec, string, error) {
	if _, err := id.Parse[id.Quote](text); err == nil {
		q, err := s.quoteOf(v, text)
		return q.Spec, "your quote", err
	}
	c, err := s.clusterOf(v, text)
	return c.Spec, c.Name, err
}

func (s *Pages) clusterOf(v *page.Visit, text string) (cluster.Cluster, error) {
	cl, err := id.Parse[id.Cluster](text)
	if err != nil {
		return cluster.Cluster{}, fault.New(fault.NotFound, "cluster not found")
	}
	return s.Clusters.Get(v.R.Context(), v.Who.Org, cl)
}

// base returns the spec from which the form was filled: it has fields that the form does not show. Without one it is
// the default.
func (s *Pages) base(v *page.Visit, from string) (market.Spec, error) {
	if from == "" || !v.SignedIn() {
		return market.DefaultSpec(), nil
	}
	was, _, err := s.specFrom(v, from)
	if err != nil {
		return market.Spec{}, err
	}
	spec := market.DefaultSpec()
	spec.Labels, spec.SSHKeyIDs, spec.MaxPricePerHour, spec.Trust = was.Labels, was.SSHKeyIDs, was.MaxPricePerHour,
		was.Trust
	spec.Mounts = was.Mounts
	return spec, nil
}

// envLines returns the environment as typed, with the mask in place of each secret value.
func envLines(s market.Spec) string {
	lines := make([]string, 0, len(s.Env))
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		lines = append(lines, k+"="+market.Mask)
	}
	return strings.Join(lines, "\n")
}

// lines shows the command and the request for what the form says now, mistakes included: they show where it stands.
func (s *Pages) lines(v *page.Visit) error {
	l, err := s.linesOf(v, specForm(v), v.R.FormValue("q"))
	if err != nil {
		return err
	}
	return s.Render(v, LinesView(l))
}

func (s *Pages) linesOf(v *page.Visit, f SpecForm, query string) (Lines, error) {
	base, err := s.base(v, f.From)
	if err != nil {
		return Lines{}, err
	}
	spec, _ := specOver(base, f, query, false)
	return Lines{CLI: page.CreateLine(spec), Curl: s.CurlLine(spec), Env: len(spec.Env) > 0}, nil
}
