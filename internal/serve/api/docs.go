package api

import (
	"bytes"
	_ "embed" // the page and its style
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsHTML string

//go:embed docs.css
var docsCSS []byte

var docsPage = template.Must(template.New("docs").Parse(docsHTML))

// reference is the human form of the OpenAPI document: one page, no script.
type reference struct {
	Version, Currency, Base string
	CSS                     string
	About                   []string
	Groups                  []refGroup
	Types                   []refType
}

type refGroup struct {
	Name string
	Ops  []refOp
}

type refOp struct {
	ID, Method, Path, Summary, Who string
	Params                         []refField
	Body, Answer                   []refField
	BodyRef, AnswerRef             string
	Status, Example                string
	Keyed                          bool
}

type refField struct {
	Name, Type, Ref, Doc string
	Required             bool
}

type refType struct {
	Name   string
	Fields []refField
}

// rendered holds the documents that do not change while the server runs. Each is rendered at its first request.
type rendered struct {
	docs, openAPI func() ([]byte, error)
}

func (a *API) render() rendered {
	return rendered{
		docs: sync.OnceValues(func() ([]byte, error) {
			var b bytes.Buffer
			err := docsPage.Execute(&b, a.reference())
			return b.Bytes(), err
		}),
		openAPI: sync.OnceValues(func() ([]byte, error) { return a.table.huma.OpenAPI().MarshalJSON() }),
	}
}

// docs serves the reference, rendered from the same document that programs read, so that the two cannot differ.
func (a *API) docs(w http.ResponseWriter, r *http.Request) {
	page, err := a.rendered.docs()
	if err != nil {
		writeProblem(w, a.problem(r.Context(), err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; font-src 'self'; base-uri 'none'; "+
		"form-action 'none'; frame-ancestors 'none'")
	h.Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(page)
}

func (a *API) docsStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(docsCSS)
}

func (a *API) reference() reference {
	d := a.table.huma.OpenAPI()
	ref := reference{
		Version:  a.cfg.Version,
		Currency: a.cfg.Currency,
		Base:     Base,
		CSS:      a.assets.URL("app.css"),
		About:    strings.Split(about, "\n\n"),
	}
	for _, key := range a.table.order {
		method, path, _ := strings.Cut(key, " ")
		op := operationOf(d.Paths[path], method)
		if op == nil {
			continue
		}
		group := op.Tags[0]
		if len(ref.Groups) == 0 || ref.Groups[len(ref.Groups)-1].Name != group {
			ref.Groups = append(ref.Groups, refGroup{Name: group})
		}
		g := &ref.Groups[len(ref.Groups)-1]
		g.Ops = append(g.Ops, a.refOp(d, op, method, path))
	}
	for name, s := range d.Components.Schemas.Map() {
		if fields := refFields(d, s, 0); len(fields) > 0 {
			ref.Types = append(ref.Types, refType{name, fields})
		}
	}
	slices.SortFunc(ref.Types, func(x, y refType) int { return strings.Compare(x.Name, y.Name) })
	return ref
}

func operationOf(p *huma.PathItem, method string) *huma.Operation {
	if p == nil {
		return nil
	}
	return map[string]*huma.Operation{"GET": p.Get, "POST": p.Post, "PATCH": p.Patch, "DELETE": p.Delete}[method]
}

func (a *API) refOp(d *huma.OpenAPI, op *huma.Operation, method, path string) refOp {
	out := refOp{
		ID:      op.OperationID,
		Method:  method,
		Path:    path,
		Summary: op.Summary,
		Who:     a.table.rule[method+" "+path].name,
		Status:  strconv.Itoa(op.DefaultStatus),
	}
	for _, p := range op.Parameters {
		if p.Name == "Idempotency-Key" {
			out.Keyed = true
			continue
		}
		f := refField{Name: p.Name, Type: typeName(p.Schema), Doc: p.Description, Required: p.Required}
		if f.Doc == "" && p.Schema != nil {
			f.Doc = p.Schema.Description
		}
		out.Params = append(out.Params, f)
	}
	if op.RequestBody != nil {
		if m := op.RequestBody.Content["application/json"]; m != nil {
			out.BodyRef, out.Body = refName(m.Schema), refFields(d, m.Schema, 0)
		}
	}
	if resp := op.Responses[out.Status]; resp != nil {
		if m := resp.Content["application/json"]; m != nil {
			out.AnswerRef, out.Answer = refName(m.Schema), refFields(d, m.Schema, 0)
		}
	}
	out.Example = example(a.cfg.PublicURL, out)
	return out
}

// example is a call one can paste.
func example(server string, op refOp) string {
	var b strings.Builder
	b.WriteString("curl ")
	if op.Method != "GET" {
		b.WriteString("-X " + op.Method + " ")
	}
	b.WriteString(server + op.Path)
	if op.Who != public.name {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $MUSTER_TOKEN\"")
	}
	if op.Keyed {
		b.WriteString(" \\\n  -H \"Idempotency-Key: $(uuidgen)\"")
	}
	if len(op.Body) > 0 {
		b.WriteString(" \\\n  --json @request.json")
	}
	return b.String()
}

// refFields lists an object's members in the order of their names; required first.
func refFields(d *huma.OpenAPI, s *huma.Schema, depth int) []refField {
	s = resolve(d, s)
	if s == nil || depth > 1 {
		return nil
	}
	if len(s.AnyOf) > 0 {
		return refFields(d, s.AnyOf[0], depth+1)
	}
	var out []refField
	for name, p := range s.Properties {
		out = append(out, refField{name, typeName(p), refName(p), p.Description, slices.Contains(s.Required, name)})
	}
	slices.SortFunc(out, func(x, y refField) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func resolve(d *huma.OpenAPI, s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return d.Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

// refName is the name of the type a schema points at, or "".
func refName(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Items != nil:
		return refName(s.Items)
	}
	return ""
}

func typeName(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return refName(s)
	case s.Type == huma.TypeArray:
		return "list of " + typeName(s.Items)
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i], _ = e.(string)
		}
		return strings.Join(words, " | ")
	case s.Format == "date-time":
		return "time"
	case s.Type == "":
		return "any"
	}
	return s.Type
}
