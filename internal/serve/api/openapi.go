package api

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
)

const about = `GPU clusters, by the second.

Amounts of money are decimal strings, times are RFC 3339 in UTC, and durations are whole seconds. Lists are paginated:
pass the value of "next" as "after" to get the next page. Every POST accepts an Idempotency-Key. Errors are problem
documents (RFC 9457) with a stable "code".`

func humaConfig(cfg Config) huma.Config {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[market.Spec](), reflect.TypeFor[client.ClusterSpec]())
	schemas.RegisterTypeAlias(reflect.TypeFor[client.Spec](), reflect.TypeFor[specBody]())
	schemas.RegisterTypeAlias(reflect.TypeFor[cluster.Seconds](), reflect.TypeFor[float64]())
	schemas.RegisterTypeAlias(reflect.TypeFor[client.Seconds](), reflect.TypeFor[float64]())
	c := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Muster", Version: "v1", Description: about,
				Contact: &huma.Contact{Name: "Muster", URL: cfg.PublicURL + docsPath},
				License: &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas:   schemas,
				Responses: map[string]*huma.Response{},
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {
					Type: "http", Scheme: "bearer", BearerFormat: account.TokenPrefix + "…",
					Description: "An API token: made in the dashboard or with `muster token create`.",
				}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{ownErrors},
	}
	if cfg.PublicURL != "" {
		c.Servers = []*huma.Server{{URL: cfg.PublicURL}}
	}
	return c
}

// schemaNames are the names of types whose own names would be ambiguous among all schemas.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[cluster.GPU]():            "NodeGPU",
	reflect.TypeFor[cluster.Event]():          "ClusterEvent",
	reflect.TypeFor[fault.Field]():            "FieldProblem",
	reflect.TypeFor[client.Problem]():         "HostProblem",
	reflect.TypeFor[client.HostAgent]():       "Agent",
	reflect.TypeFor[client.ReclaimForecast](): "Reclaim",
}

func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, ok := schemaNames[t]; ok {
		return name
	}
	return strings.ReplaceAll(huma.DefaultSchemaNamer(t, hint), "View", "")
}

// polish removes what huma adds to the document: its own error model, and lists that may be null (ours never are).
func polish(d *huma.OpenAPI) {
	schemas := d.Components.Schemas.Map()
	for name, s := range schemas {
		markNullable(s, d.Components.Schemas.TypeFromRef("#/components/schemas/"+name))
	}
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	describeNoCapacity(d.Components.Schemas)
	for name, s := range schemas {
		for _, p := range s.Properties {
			p.PatternDescription = "" // not JSON Schema; the messages that use it exist already
			if p.Type == huma.TypeArray && !requestSchemas[name] {
				p.Nullable = false
			}
		}
	}
	describe(d)
}

// describe gives every property, parameter, body and answer its description and example.
func describe(d *huma.OpenAPI) {
	of := describer{d.Components.Schemas, readProperties(propertiesText)}
	for name, s := range d.Components.Schemas.Map() {
		t := d.Components.Schemas.TypeFromRef("#/components/schemas/" + name)
		if requestSchemas[name] {
			t = reflect.TypeFor[client.ClusterSpec]()
		}
		of.schema(name, s, t)
	}
	for _, op := range operations(d) {
		for _, p := range op.Parameters {
			of.parameter(op, p)
		}
		if op.RequestBody != nil {
			of.body(op.OperationID, op.RequestBody.Content["application/json"])
			of.content(op.RequestBody.Content)
		}
		for _, r := range op.Responses {
			of.content(r.Content)
		}
	}
}

// describeNoCapacity adds the members that a problem of code no_capacity has beyond the common ones. Further kinds may
// get members of their own, as RFC 9457 allows.
func describeNoCapacity(schemas huma.Registry) {
	problem := schemas.Map()["Problem"]
	problem.AdditionalProperties = true
	add := func(name, description string, t reflect.Type) {
		s := schemas.Schema(t, true, "")
		s.Description, s.Nullable = description, false
		problem.Properties[name] = s
	}
	add("explain", "With no_capacity: how many hosts each constraint excluded, of those that the constraints before it "+
		"left.",
		reflect.TypeFor[[]client.Exclusion]())
	add("hosts", "With no_capacity: how many hosts were considered.", reflect.TypeFor[int]())
	add("relaxations", "With no_capacity: changes to the spec with which it would fit, cheapest first.",
		reflect.TypeFor[[]client.Relaxation]())
	add("unmeasured", "With no_capacity, if a bandwidth is wanted: some hosts that would do although their network has "+
		"not been measured yet.",
		reflect.TypeFor[[]string]())
}

// markNullable marks each property that refers to another schema and may be null, which huma does not: a pointer that
// is always written.
func markNullable(s *huma.Schema, t reflect.Type) {
	if t == nil {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.Properties[name]
		if p == nil || p.Ref == "" || f.Type.Kind() != reflect.Pointer || strings.Contains(options, "omit") {
			continue
		}
		s.Properties[name] = &huma.Schema{
			Description: p.Description, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}},
		}
	}
}

// openAPI serves the document, which is rendered once: anybody may ask for it, as often as they like.
func (a *API) openAPI(w http.ResponseWriter, r *http.Request) {
	raw, err := a.OpenAPI()
	if err != nil {
		writeProblem(w, a.problem(r.Context(), err))
		return
	}
	w.Header().Set("Content-Type", "application/openapi+json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(raw)
}
