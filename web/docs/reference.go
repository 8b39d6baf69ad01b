package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// spec is what the pages about the REST API show of the OpenAPI document.
type spec struct {
	Tags []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"tags"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas   map[string]*schema `json:"schemas"`
		Responses map[string]answer  `json:"responses"`
	} `json:"components"`
}

type operation struct {
	ID          string   `json:"operationId"`
	Summary     string   `json:"summary"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Parameters  []struct {
		Name        string  `json:"name"`
		In          string  `json:"in"`
		Description string  `json:"description"`
		Required    bool    `json:"required"`
		Schema      *schema `json:"schema"`
	} `json:"parameters"`
	Body *struct {
		Content map[string]media `json:"content"`
	} `json:"requestBody"`
	Answers map[string]answer `json:"responses"`
	Samples []struct {
		Label  string `json:"label"`
		Source string `json:"source"`
	} `json:"x-codeSamples"`

	method, path string
}

type answer struct {
	Ref         string           `json:"$ref"`
	Description string           `json:"description"`
	Content     map[string]media `json:"content"`
}

type media struct {
	Schema  *schema         `json:"schema"`
	Example json.RawMessage `json:"example"`
}

type schema struct {
	Ref         string             `json:"$ref"`
	Type        any                `json:"type"`
	Format      string             `json:"format"`
	Description string             `json:"description"`
	Items       *schema            `json:"items"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Enum        []any              `json:"enum"`
	AnyOf       []*schema          `json:"anyOf"`
}

// methods are the methods of operations, in the order in which a page lists those of one path.
var methods = []string{"get", "post", "put", "patch", "delete"}

// referencePages returns a page in Markdown for each noun of the OpenAPI document, by its file, and the files in the
// order of the menu.
func referencePages(document []byte) (map[string]string, []string, error) {
	var s spec
	if err := json.Unmarshal(document, &s); err != nil {
		return nil, nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	byTag := map[string][]operation{}
	for _, path := range slices.Sorted(maps.Keys(s.Paths)) {
		for _, method := range methods {
			if op, ok := s.Paths[path][method]; ok && len(op.Tags) > 0 {
				op.method, op.path = strings.ToUpper(method), path
				byTag[op.Tags[0]] = append(byTag[op.Tags[0]], op)
			}
		}
	}
	pages := map[string]string{}
	var files []string
	for _, tag := range s.Tags {
		file := "api/" + tag.Name + ".md"
		pages[file] = s.page(tag.Name, tag.Description, byTag[tag.Name])
		files = append(files, file)
	}
	return pages, files, nil
}

// page writes the page of a noun: a table of its operations, the operations, and the types that they use.
func (s *spec) page(name, about string, ops []operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# API: %s\n\n%s\n\n| operation | request |\n| --- | --- |\n", name, about)
	for _, op := range ops {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s %s` |\n", op.Summary, anchor(op.Summary), op.method, op.path)
	}
	used := map[string]bool{}
	for _, op := range ops {
		s.operation(&b, op, used)
	}
	for more := true; more; { // types that types use
		more = false
		for _, t := range slices.Sorted(maps.Keys(used)) {
			more = s.uses(s.Components.Schemas[t], used) || more
		}
	}
	for _, t := range slices.Sorted(maps.Keys(used)) {
		of := s.Components.Schemas[t]
		fmt.Fprintf(&b, "\n## Type %s\n\n%s\n", t, cell(of.Description))
		if len(of.Properties) == 0 {
			b.WriteString("\nAn object without fields.\n")
		}
		writeFields(&b, of)
	}
	return b.String()
}

func (s *spec) operation(b *strings.Builder, op operation, used map[string]bool) {
	fmt.Fprintf(b, "\n## %s\n\n`%s %s`\n\n%s\n", op.Summary, op.method, op.path, op.Description)
	if len(op.Parameters) > 0 {
		b.WriteString("\n| parameter | type | meaning |\n| --- | --- | --- |\n")
		for _, p := range op.Parameters {
			fmt.Fprintf(b, "| `%s` (%s)%s | %s | %s |\n", p.Name, p.In, required(p.Required), typeOf(p.Schema),
				cell(p.Description))
		}
	}
	if op.Body != nil {
		if m, ok := op.Body.Content["application/json"]; ok && m.Schema != nil {
			fmt.Fprintf(b, "\nBody: %s.\n", typeOf(m.Schema))
			s.uses(&schema{Items: m.Schema}, used)
			if m.Schema.Ref == "" {
				writeFields(b, m.Schema)
			}
		}
	}
	for _, sample := range op.Samples {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", sample.Source)
	}
	s.answers(b, op, used)
}

// answers writes the successful answer with its example, and a table of the failures.
func (s *spec) answers(b *strings.Builder, op operation, used map[string]bool) {
	var failures []string
	for _, status := range slices.Sorted(maps.Keys(op.Answers)) {
		a := op.Answers[status]
		if a.Ref != "" {
			a = s.Components.Responses[a.Ref[strings.LastIndexByte(a.Ref, '/')+1:]]
		}
		if status[0] != '2' {
			failures = append(failures, fmt.Sprintf("| %s | %s |\n", status, cell(a.Description)))
			continue
		}
		fmt.Fprintf(b, "\nAnswer: `%s`", status)
		for _, kind := range slices.Sorted(maps.Keys(a.Content)) {
			m := a.Content[kind]
			s.uses(&schema{Items: m.Schema}, used)
			if kind != "application/json" {
				fmt.Fprintf(b, " as `%s`", kind)
				continue
			}
			fmt.Fprintf(b, " with %s.\n", typeOf(m.Schema))
			var indented bytes.Buffer
			if len(m.Example) > 0 && json.Indent(&indented, m.Example, "", "  ") == nil {
				fmt.Fprintf(b, "\n```json\n%s\n```\n", indented.String())
			}
		}
		b.WriteString("\n")
	}
	if len(failures) > 0 {
		fmt.Fprintf(b, "\n| status | [failures](errors.md) |\n| --- | --- |\n%s", strings.Join(failures, ""))
	}
}

// uses adds the types that a schema refers to. It reports whether one of them is new.
func (s *spec) uses(of *schema, used map[string]bool) bool {
	if of == nil {
		return false
	}
	added := false
	if name := refName(of); name != "" && !used[name] {
		used[name], added = true, true
	}
	for _, p := range of.Properties {
		added = s.uses(p, used) || added
	}
	for _, p := range of.AnyOf {
		added = s.uses(p, used) || added
	}
	return s.uses(of.Items, used) || added
}

func refName(s *schema) string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// writeFields writes the table of an object's fields, the required ones first.
func writeFields(b *strings.Builder, s *schema) {
	if len(s.Properties) == 0 {
		return
	}
	b.WriteString("\n| field | type | meaning |\n| --- | --- | --- |\n")
	names := slices.Sorted(maps.Keys(s.Properties))
	slices.SortStableFunc(names, func(x, y string) int {
		return rank(slices.Contains(s.Required, x)) - rank(slices.Contains(s.Required, y))
	})
	for _, name := range names {
		p := s.Properties[name]
		fmt.Fprintf(b, "| `%s` | %s | %s%s |\n", name, typeOf(p), cell(p.Description), values(p))
	}
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

func required(yes bool) string {
	if yes {
		return ", required"
	}
	return ""
}

// values lists the values of an enum.
func values(s *schema) string {
	var out []string
	for _, v := range s.Enum {
		if v, ok := v.(string); ok && v != "" {
			out = append(out, "`"+v+"`")
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " One of " + strings.Join(out, ", ") + "."
}

// typeOf names a type, with a link to it if it is an object.
func typeOf(s *schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return fmt.Sprintf("[%s](#type-%s)", refName(s), strings.ToLower(refName(s)))
	case len(s.AnyOf) > 0:
		var out []string
		for _, of := range s.AnyOf {
			out = append(out, typeOf(of))
		}
		return strings.Join(out, " or ")
	case s.Items != nil:
		return "list of " + typeOf(s.Items)
	case s.Format == "date-time":
		return "time"
	case s.Format == "decimal":
		return "decimal"
	}
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		return fmt.Sprint(t[0]) + " or null"
	}
	return "any"
}

// cell makes a description fit for a cell of a table in Markdown.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "[", `\[`, "\n", " ").Replace(s)
}

// anchor is the id of a heading.
func anchor(title string) string {
	a := anchors{used: map[string]bool{}}
	return string(a.Generate([]byte(title), 0))
}
