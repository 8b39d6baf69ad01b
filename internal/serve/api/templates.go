package api

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// templatesAPI answers the routes of templates.
type templatesAPI struct {
	templates *template.Templates
	clusters  *cluster.Clusters
}

type templateInput struct {
	Name string `path:"name" maxLength:"63" doc:"name of the template"`
}

func viewTemplate(t template.Template) client.Template {
	v := client.Template{
		Name: t.Name, Title: cmp.Or(t.Title, t.Name), Description: t.Description, BuiltIn: t.BuiltIn, StandIn: t.StandIn,
		Parameters: make([]client.TemplateParameter, len(t.Parameters)), Spec: viewSpec(t.Spec),
	}
	for i, p := range t.Parameters {
		v.Parameters[i] = client.TemplateParameter(p)
	}
	if !t.BuiltIn {
		at := t.CreatedAt.UTC()
		v.CreatedAt = &at
	}
	return v
}

func (a templatesAPI) list(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Template], error) {
	all, err := a.templates.List(ctx, p)
	return cut(all, len(all), viewTemplate, func(t template.Template) string { return t.Name }), err
}

func (a templatesAPI) get(ctx context.Context, p account.Principal, in *templateInput) (client.Template, error) {
	t, err := a.templates.Get(ctx, p, in.Name)
	return viewTemplate(t), err
}

// templateBody is a template to save. Package market decodes its spec, and names every fault in it.
type templateBody struct {
	name, title, description string
	cluster                  *id.Cluster
	spec                     json.RawMessage
}

func (b *templateBody) UnmarshalJSON(raw []byte) error {
	var in struct {
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		ClusterID   *id.Cluster     `json:"cluster_id"`
		Spec        json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	*b = templateBody{in.Name, in.Title, in.Description, in.ClusterID, in.Spec}
	return nil
}

// Schema documents the body.
func (templateBody) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[client.NewTemplate](), true, "NewTemplate")
}

type newTemplateInput struct {
	Keyed
	Body templateBody
}

func (a templatesAPI) create(ctx context.Context, p account.Principal, in *newTemplateInput,
	once idem.Request) (client.Template, idem.Outcome, error) {
	n := template.NewTemplate{Name: in.Body.name, Title: in.Body.title, Description: in.Body.description}
	var err error
	switch {
	case in.Body.cluster != nil && in.Body.spec != nil, in.Body.cluster == nil && in.Body.spec == nil:
		err = fault.InvalidField("spec", "Send either spec or cluster_id.")
	case in.Body.cluster != nil:
		n.Spec, err = a.specOfCluster(ctx, p, *in.Body.cluster)
	default:
		n.Spec, err = market.ParseQuoteSpec(in.Body.spec)
	}
	if err != nil {
		return client.Template{}, idem.Outcome{}, err
	}
	t, out, err := a.templates.Create(ctx, p, n, idem.As(once, viewTemplate))
	return viewTemplate(t), out, err
}

func (a templatesAPI) specOfCluster(ctx context.Context, p account.Principal, cl id.Cluster) (market.Spec, error) {
	c, err := a.clusters.Views.Get(ctx, p.Org, cl)
	return c.Spec, err
}

func (a templatesAPI) delete(ctx context.Context, p account.Principal, in *templateInput) (nothing, error) {
	return nothing{}, a.templates.Delete(ctx, p, in.Name)
}
