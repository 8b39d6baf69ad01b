package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market"
)

// theDocument is the OpenAPI document of a server without a database.
func theDocument() *huma.OpenAPI {
	return New(Config{Currency: "USD", PublicURL: "https://muster.example"}, Deps{}).table.huma.OpenAPI()
}

func TestDocument_DescribesEveryProperty(t *testing.T) {
	t.Parallel()
	properties := 0
	for name, s := range theDocument().Components.Schemas.Map() {
		for field, p := range s.Properties {
			properties++
			if p.Description == "" {
				t.Errorf("%s.%s has no description: add a doc tag, or a row to properties.txt", name, field)
			}
			of := p.Ref != "" || len(p.AnyOf) > 0 || p.Items != nil && p.Items.Ref != "" // its own properties have them
			if len(p.Examples) == 0 && !of {
				t.Errorf("%s.%s has no example: add an example tag, or a row to properties.txt", name, field)
			}
		}
	}
	if properties < 1500 {
		t.Errorf("only %d properties seen: the walk is broken", properties)
	}
}

func TestDocument_DescribesEveryOperation(t *testing.T) {
	t.Parallel()
	d := theDocument()
	for id, op := range operations(d) {
		if op.Summary == "" || strings.HasSuffix(op.Summary, ".") || op.Description == "" {
			t.Errorf("%s: summary %q, description %q", id, op.Summary, op.Description)
		}
		inPath := 0
		for _, p := range op.Parameters {
			if p.Description == "" || p.In == "path" && p.Example == nil {
				t.Errorf("%s: parameter %s has no description or example", id, p.Name)
			}
			if p.In == "path" {
				inPath++
			}
		}
		if inPath != strings.Count(op.Path, "{") { // huma passes over embedded structs that are not exported
			t.Errorf("%s: %d parameters of the path %s are read", id, inPath, op.Path)
		}
		failures := 0
		for status := range op.Responses {
			if status[0] == '4' {
				failures++
			}
		}
		if failures < 2 {
			t.Errorf("%s names %d failures", id, failures)
		}
	}
}

// TestProperties_AreAllUsed: a row of properties.txt that describes nothing is left over.
func TestProperties_AreAllUsed(t *testing.T) {
	t.Parallel()
	used, seen := map[string]bool{}, map[string]bool{}
	d := theDocument()
	for name, s := range d.Components.Schemas.Map() {
		for field := range s.Properties {
			used[field], used[name+"."+field] = true, true
		}
	}
	for id, op := range operations(d) {
		used["body."+id] = true
		for _, p := range op.Parameters {
			used[p.In+"."+p.Name], used[id+"."+p.Name] = true, true
			if p.In == "path" {
				before, _, _ := strings.Cut(op.Path, "/{"+p.Name+"}")
				used["path."+before[strings.LastIndexByte(before, '/')+1:]] = true
			}
		}
	}
	for line := range strings.Lines(propertiesText) {
		name, _, ok := strings.Cut(line, " |")
		if !ok || line[0] == '#' {
			continue
		}
		if !used[name] || seen[name] {
			t.Errorf("row %s describes nothing, or is there twice", name)
		}
		seen[name] = true
	}
}

// TestRequestSpecs_RequireWhatTheServerRequires: the server accepts a spec that has the required fields alone, and
// refuses one that lacks one of them.
func TestRequestSpecs_RequireWhatTheServerRequires(t *testing.T) {
	t.Parallel()
	schemas := theDocument().Components.Schemas.Map()
	if got := schemas[newClusterSchema].Required; !slices.Equal(got, []string{"image"}) {
		t.Errorf("a cluster requires %v", got)
	}
	if got := schemas[newQuoteSchema].Required; len(got) != 0 {
		t.Errorf("a quote requires %v", got)
	}
	for raw, ok := range map[string]bool{
		`{"image":"debian:12"}`: true, `{"nodes":2,"gpus_per_node":4,"gpu":"h100"}`: false,
	} {
		var s market.Spec
		if err := s.UnmarshalJSON([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(true); (err == nil) != ok {
			t.Errorf("a cluster of %s: %v", raw, err)
		}
	}
	if _, err := market.ParseQuoteSpec([]byte(`{}`)); err != nil {
		t.Errorf("a quote of {}: %v", err)
	}
	for field := range schemas[rentQuoteSchema].Properties {
		if field != "quote_id" && !market.Overridable(field) {
			t.Errorf("a quote cannot be rented with another %s", field)
		}
	}
	for field := range schemas[clusterSpecSchema].Properties {
		if schemas[newClusterSchema].Properties[field] == nil && !slices.Contains(notOffered, field) {
			t.Errorf("%s cannot be sent", field)
		}
	}
	spec := reflect.TypeFor[client.Spec]()
	for i := range spec.NumField() {
		field, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if schemas[newClusterSchema].Properties[field] == nil {
			t.Errorf("the client sends %s, which is not in the document", field)
		}
	}
}

// TestEnums_HaveEveryConstant compares the values of the document with the constants of their Go types.
func TestEnums_HaveEveryConstant(t *testing.T) {
	t.Parallel()
	for of, enum := range enumOf {
		dir := strings.TrimPrefix(of.PkgPath(), "github.com/musterhq/muster/")
		files, err := filepath.Glob("../../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		constants := 0
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				constants += constantsOf(t, file, of.Name())
			}
		}
		n := len(enum)
		if of == reflect.TypeFor[client.TaxReason]() {
			n-- // no constant stands for "not decided yet"
		}
		if constants != n {
			t.Errorf("%s has %d constants, the document names %d", of, constants, n)
		}
	}
}

// constantsOf counts the constants of a named type in a file.
func constantsOf(t *testing.T, file, name string) int {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			if v := spec.(*ast.ValueSpec); v.Type != nil {
				if id, ok := v.Type.(*ast.Ident); ok && id.Name == name {
					n += len(v.Names)
				}
			}
		}
	}
	return n
}
