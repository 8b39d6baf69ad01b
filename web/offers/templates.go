package offers

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// templates shows the built-in templates and, to members, those of their organisation. Each has a form with its
// parameters: one click gets a quote, the next rents it.
func (s *Pages) templates(v *page.Visit) error {
	return s.showTemplates(v, SaveForm{Cluster: v.R.FormValue("from"), Name: v.R.FormValue("name")})
}

func (s *Pages) showTemplates(v *page.Visit, save SaveForm) error {
	all, err := s.Templates.List(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	t := TemplateList{SignedIn: v.SignedIn(), Save: save}
	for _, x := range all {
		if x.BuiltIn {
			t.BuiltIn = append(t.BuiltIn, viewTemplate(x))
		} else {
			t.Own = append(t.Own, viewTemplate(x))
		}
	}
	return s.Render(v, TemplatesPage(v.Page("Templates", "market"), t))
}

func viewTemplate(t template.Template) TemplateView {
	out := TemplateView{
		Name: t.Name, Title: cmp.Or(t.Title, t.Name), Description: t.Description, StandIn: t.StandIn, Image: t.Spec.Image,
		Own: !t.BuiltIn, Squares: make([][]string, t.Spec.Nodes),
		Size: view.Plural(t.Spec.Nodes, "node", "nodes") + ", " + view.Plural(t.Spec.GPUs(), "GPU", "GPUs"),
	}
	for i := range out.Squares {
		out.Squares[i] = view.Row(t.Spec.GPUsPerNode, "mine")
	}
	form := templateForm(t)
	for _, p := range t.Parameters {
		f := TemplateField{Field: p.Field, Label: p.Label, Help: p.Help, Value: *form.field(p.Field)}
		if name, ok := strings.CutPrefix(p.Field, "env."); ok {
			f.Value = t.Spec.Env[name]
			f.Secret = f.Value == market.Mask
		}
		if f.Secret {
			f.Value = ""
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}

// templateForm returns the rent form that a template fills. Its Env contains Mask for values that the template does not
// have.
func templateForm(t template.Template) SpecForm {
	f := asTyped(t.Spec)
	f.Query = t.Spec.GPU
	var env []string
	for _, k := range slices.Sorted(maps.Keys(t.Spec.Env)) {
		env = append(env, k+"="+t.Spec.Env[k])
	}
	f.Env = strings.Join(env, "\n")
	return f
}

// field returns the field of the form that a parameter sets; for an unknown one, a text that nothing reads.
func (f *SpecForm) field(name string) *string {
	switch name {
	case "nodes":
		return &f.Nodes
	case "gpus_per_node":
		return &f.GPUs
	case "gpu":
		return &f.Query
	case "disk_gb":
		return &f.DiskGB
	}
	return new(string)
}

// fillTemplate fills the form from a template and the parameters in the request, which are named p.FIELD.
func (s *Pages) fillTemplate(v *page.Visit, m *Market, name string) error {
	t, err := s.Templates.Get(v.R.Context(), v.Who, name)
	if err != nil {
		return err
	}
	f := templateForm(t)
	env := maps.Clone(t.Spec.Env)
	for _, p := range t.Parameters {
		values, given := v.R.Form["p."+p.Field]
		if !given {
			continue
		}
		value := strings.TrimSpace(values[0])
		if name, ok := strings.CutPrefix(p.Field, "env."); ok {
			env[name] = cmp.Or(value, env[name])
			continue
		}
		*f.field(p.Field) = value
	}
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		lines = append(lines, k+"="+env[k])
	}
	f.Env, f.From = strings.Join(lines, "\n"), fromTemplate+t.Name
	m.Query, m.Spec = f.Query, f
	return nil
}

// saveTemplate saves the spec of a cluster as a template of the organisation.
func (s *Pages) saveTemplate(v *page.Visit) error {
	form := SaveForm{Cluster: v.R.PostFormValue("from"), Name: v.R.PostFormValue("name"),
		Title: v.R.PostFormValue("title"), Description: v.R.PostFormValue("description")}
	c, err := s.clusterOf(v, form.Cluster)
	if err != nil {
		return err
	}
	_, _, err = s.Templates.Create(v.R.Context(), v.Who, template.NewTemplate{
		Name: form.Name, Title: form.Title, Description: form.Description, Spec: c.Spec,
	}, idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showTemplates(v, form)
		})
	}
	return page.Back(v, "/templates")
}

func (s *Pages) deleteTemplate(v *page.Visit) error {
	err := s.Templates.Delete(v.R.Context(), v.Who, chi.URLParam(v.R, "name"))
	if err != nil && !fault.Is(err, fault.NotFound) { // pressed twice
		return err
	}
	return page.Back(v, "/templates")
}
