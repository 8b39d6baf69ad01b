package offers

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// origin is what a form was filled from.
type origin struct {
	spec market.Spec
	note string // for the visitor
}

// fromTemplate is before the name of a template in SpecForm.From, where the id of a cluster or a quote stands alone.
const fromTemplate = "template:"

// fillAgain fills the form with the spec of one of the organisation's clusters or quotes.
func (s *Pages) fillAgain(v *page.Visit, m *Market, from string) error {
	o, err := s.originOf(v, from)
	if err != nil {
		return err
	}
	m.Query, m.Spec = o.spec.GPU, asTyped(o.spec)
	m.Spec.Env, m.Spec.From, m.Spec.Note = envLines(o.spec), from, o.note
	return nil
}

// originOf returns the cluster, quote or template from which a form was filled.
func (s *Pages) originOf(v *page.Visit, from string) (origin, error) {
	if name, ok := strings.CutPrefix(from, fromTemplate); ok {
		t, err := s.Templates.Get(v.R.Context(), v.Who, name)
		return origin{t.Spec, cmp.Or(t.StandIn, "From the template "+cmp.Or(t.Title, t.Name)+".")}, err
	}
	spec, name, err := s.specFrom(v, from)
	o := origin{spec, "This is the spec of " + name + "."}
	if len(spec.Env) > 0 {
		o.note += " Values of its environment are secret: enter them again."
	}
	return o, err
}

// specFrom returns the spec of a cluster or a quote, and what to call it.
func (s *Pages) specFrom(v *page.Visit, text string) (market.Spec, string, error) {
	if !v.SignedIn() {
		return market.Spec{}, "", fault.New(fault.NotFound, "cluster not found")
	}
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
	return s.Clusters.Views.Get(v.R.Context(), v.Who.Org, cl)
}

// base returns the spec that has what the form does not show: that of its origin, or else the default. It sets the note
// about the origin, which the request does not contain. A visitor who is not signed in any more has no origin.
func (s *Pages) base(v *page.Visit, f *SpecForm) (market.Spec, error) {
	spec := market.DefaultSpec()
	if f.From == "" {
		return spec, nil
	}
	o, err := s.originOf(v, f.From)
	if fault.Is(err, fault.NotFound) && !v.SignedIn() {
		f.From = ""
		return spec, nil
	}
	if err != nil {
		return market.Spec{}, err
	}
	was := o.spec
	spec.Labels, spec.SSHKeyIDs, spec.MaxPricePerHour, spec.Trust = was.Labels, was.SSHKeyIDs, was.MaxPricePerHour,
		was.Trust
	spec.Mounts, f.Note = was.Mounts, o.note
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
	f := specForm(v)
	l, err := s.linesOf(v, &f, v.R.FormValue("q"))
	if err != nil {
		return err
	}
	return s.Render(v, LinesView(l))
}

// linesOf also sets the form's note about its origin.
func (s *Pages) linesOf(v *page.Visit, f *SpecForm, query string) (Lines, error) {
	base, err := s.base(v, f)
	if err != nil {
		return Lines{}, err
	}
	spec, _ := specOver(base, *f, query, false)
	return Lines{CLI: page.CreateLine(spec), Curl: s.CurlLine(spec), Env: len(spec.Env) > 0}, nil
}
