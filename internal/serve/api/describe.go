package api

import (
	"cmp"
	_ "embed" // the descriptions of properties
	"encoding/json"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/money"
)

//go:embed properties.txt
var propertiesText string

// property is what a row of properties.txt says about a property.
type property struct{ description, example string }

// readProperties reads properties.txt: rows by name, or by schema and name.
func readProperties(text string) map[string]property {
	rows := map[string]property{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, " |")
		description, example, _ := strings.Cut(rest, "|")
		rows[name] = property{strings.TrimSpace(description), strings.TrimSpace(example)}
	}
	return rows
}

// describer gives each property of the document a description and an example.
type describer struct {
	schemas huma.Registry
	rows    map[string]property
}

// schema describes the properties of a named schema. t is its Go type; nil: not known.
func (d describer) schema(name string, s *huma.Schema, t reflect.Type) {
	fields := fieldsOf(t)
	for p, of := range s.Properties {
		d.property(name, p, of, fields[p])
	}
}

func (d describer) property(schema, name string, p *huma.Schema, t reflect.Type) {
	own, common := d.rows[schema+"."+name], d.rows[name]
	for _, row := range []property{own, common} {
		if p.Description == "" {
			p.Description = row.description
		}
	}
	p.Description = sentence(p.Description)
	if values := enumOf[t]; len(values) > 0 && len(p.Enum) == 0 {
		p.Enum = slices.Clone(values)
	}
	if p.Items != nil && len(p.Items.Enum) == 0 && t != nil && t.Kind() == reflect.Slice {
		p.Items.Enum = slices.Clone(enumOf[t.Elem()])
	}
	if t == reflect.TypeFor[money.Nano]() || t == reflect.TypeFor[money.Micro]() {
		p.Format, p.Pattern = "decimal", `^-?\d+(\.\d+)?$`
	}
	if p.Nullable && len(p.Enum) > 0 && !slices.Contains(p.Enum, nil) {
		p.Enum = append(p.Enum, nil)
	}
	if len(p.Examples) > 0 || p.Ref != "" || len(p.AnyOf) > 0 {
		return
	}
	for _, row := range []property{own, common} {
		if v, ok := exampleIn(row.example, p); ok && len(p.Enum) == 0 {
			p.Examples = []any{v}
			return
		}
	}
	if v := exampleOf(p, t); v != nil {
		p.Examples = []any{v}
	}
}

// parameter describes a parameter of an operation. An id in the path is that of the operation's noun.
func (d describer) parameter(op *huma.Operation, p *huma.Param) {
	if p.Description == "" && p.Schema != nil {
		p.Description = p.Schema.Description
	}
	if p.Description == "" && p.In == "path" {
		p.Description = cmp.Or(d.rows["path."+p.Name].description, d.rows[p.Name].description)
	}
	p.Description = sentence(p.Description)
	if p.Schema != nil {
		p.Schema.Description = ""
	}
	if p.Example == nil && len(p.Schema.Examples) == 0 {
		text := cmp.Or(d.rows[op.OperationID+"."+p.Name].example, d.rows["query."+p.Name].example)
		if p.In == "path" {
			text = cmp.Or(text, d.pathExample(op, p))
		}
		if v, ok := exampleIn(text, p.Schema); ok && (len(p.Schema.Enum) == 0 || p.In == "path") {
			p.Example = v
		}
	}
}

// pathExample is the example of an id in a path, by what comes before it.
func (d describer) pathExample(op *huma.Operation, p *huma.Param) string {
	before, _, _ := strings.Cut(op.Path, "/{"+p.Name+"}")
	return d.rows["path."+path.Base(before)].example
}

// body gives a request the example of its row, if there is one. Rows are for requests with properties that do not go
// together, or of which people send only a few.
func (d describer) body(operation string, m *huma.MediaType) {
	if m == nil {
		return
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(d.rows["body."+operation].example), &v); err == nil {
		m.Example = v
	}
}

// content gives each body an example.
func (d describer) content(all map[string]*huma.MediaType) {
	for media, m := range all {
		if m.Example == nil && strings.HasSuffix(media, "json") {
			m.Example = d.sample(m.Schema, 0)
		}
	}
}

// operations returns all operations of a document by their ids.
func operations(d *huma.OpenAPI) map[string]*huma.Operation {
	out := map[string]*huma.Operation{}
	for _, p := range d.Paths {
		for _, op := range []*huma.Operation{p.Get, p.Post, p.Put, p.Patch, p.Delete} {
			if op != nil {
				out[op.OperationID] = op
			}
		}
	}
	return out
}

// fieldsOf returns the types of a struct's fields by their names in JSON, without pointers.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	t = without(t)
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	out := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out[name] = without(f.Type)
	}
	return out
}

// without returns the type that a pointer type points to.
func without(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// exampleIn reads the example of a row for a property: a text for texts, JSON for all else.
func exampleIn(text string, p *huma.Schema) (any, bool) {
	if text == "" {
		return nil, false
	}
	if p.Type == huma.TypeString {
		return text, true
	}
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return nil, false
	}
	kind := map[string]reflect.Kind{
		huma.TypeBoolean: reflect.Bool, huma.TypeInteger: reflect.Float64, huma.TypeNumber: reflect.Float64,
		huma.TypeArray: reflect.Slice, huma.TypeObject: reflect.Map,
	}[p.Type]
	return v, v != nil && (p.Type == "" || reflect.TypeOf(v).Kind() == kind)
}

// exampleTime is the example of every time.
const exampleTime = "2026-11-22T09:30:00Z"

// exampleOf makes an example from a property's schema and Go type. It returns nil if neither says enough.
func exampleOf(p *huma.Schema, t reflect.Type) any {
	switch {
	case len(p.Enum) > 0:
		return firstText(p.Enum)
	case p.Format == "date-time":
		return exampleTime
	case p.Format == "decimal":
		return "12.500000"
	case p.Type == huma.TypeBoolean:
		return false
	case p.Type == huma.TypeInteger:
		if p.Minimum != nil {
			return int(*p.Minimum)
		}
		return 1
	case p.Type == huma.TypeNumber:
		return 1.5
	case p.Type == huma.TypeArray && p.Items != nil && p.Items.Ref == "":
		var item reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			item = without(t.Elem())
		}
		if v := exampleOf(p.Items, item); v != nil {
			return []any{v}
		}
	case t != nil:
		if v, ok := reflect.Zero(t).Interface().(interface{ Example() string }); ok {
			return v.Example()
		}
	}
	return nil
}

// firstText returns the first value of an enum that is not empty.
func firstText(enum []any) any {
	for _, v := range enum {
		if v != "" && v != nil {
			return v
		}
	}
	return enum[0]
}

// sample makes an example of a whole schema from those of its properties.
func (d describer) sample(s *huma.Schema, depth int) any {
	const deepest = 20 // schemas that contain themselves end there
	switch {
	case s == nil || depth > deepest:
		return nil
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Ref != "":
		return d.sample(d.schemas.SchemaFromRef(s.Ref), depth+1)
	case len(s.AnyOf) > 0:
		return d.sample(s.AnyOf[0], depth)
	case s.Type == huma.TypeArray:
		if v := d.sample(s.Items, depth+1); v != nil {
			return []any{v}
		}
		return []any{}
	case s.Type == huma.TypeObject:
		out := map[string]any{}
		for name, p := range s.Properties {
			if v := d.sample(p, depth+1); v != nil {
				out[name] = v
			}
		}
		return out
	}
	return exampleOf(s, nil)
}

// sentence returns a description with a capital letter and a full stop.
func sentence(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	word, _, _ := strings.Cut(s, " ")
	if !strings.ContainsAny(word, "_:=./") {
		s = string(unicode.ToUpper(first)) + s[size:]
	}
	if !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "…") {
		s += "."
	}
	return s
}
