package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
)

// maxSpecFile is the most bytes of a spec file.
const maxSpecFile = 1 << 20

// readSpec reads a spec in YAML or JSON, which is YAML as well. Errors name the line. For people, it accepts more than
// the API: amounts and the values of env and labels without quotes, and max_duration as 90m or 2h.
func readSpec(name string, raw []byte, s *client.Spec) error {
	if len(raw) > maxSpecFile {
		return fault.New(fault.Invalid, "%s: a spec has at most %d bytes", name, maxSpecFile)
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "%s is empty", name)
	} else if err != nil {
		return fault.New(fault.Invalid, "%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if d.Decode(new(yaml.Node)) == nil {
		return fault.New(fault.Invalid, "%s has several documents: a spec is one", name)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return fault.New(fault.Invalid, "%s:%d: want fields such as \"image: pytorch/pytorch:2.4.0\"", name, root.Line)
	}
	c := specConverter{}
	v := c.value(root, nil)
	if c.err != nil {
		return fault.New(fault.Invalid, "%s:%d: %s", name, c.line, c.err)
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		return fault.New(fault.Invalid, "%s: %s", name, err)
	}
	j := json.NewDecoder(bytes.NewReader(asJSON))
	j.DisallowUnknownFields()
	if err := j.Decode(s); err != nil {
		line, message := explainSpec(root, err)
		return fault.New(fault.Invalid, "%s:%d: %s", name, line, message)
	}
	return nil
}

// specConverter turns YAML nodes into values that encode as the JSON of a spec. It remembers the first error.
type specConverter struct {
	err   error
	line  int
	depth int
	nodes int // visited, aliases included
}

func (c *specConverter) fail(n *yaml.Node, format string, args ...any) any {
	if c.err == nil {
		c.err, c.line = fmt.Errorf(format, args...), n.Line
	}
	return nil
}

// maxSpecNodes bounds the work for a file whose aliases refer to each other many times.
const maxSpecNodes = 100_000

func (c *specConverter) value(n *yaml.Node, path []string) any {
	if c.nodes++; c.nodes > maxSpecNodes || c.depth > 20 {
		return c.fail(n, "the spec is nested too deeply or too large")
	}
	c.depth++
	defer func() { c.depth-- }()
	switch n.Kind {
	case yaml.AliasNode:
		return c.value(n.Alias, path)
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, e := range n.Content {
			out[i] = c.value(e, path)
		}
		return out
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if _, twice := out[key.Value]; twice || key.Kind != yaml.ScalarNode {
				return c.fail(key, "the field %q stands twice, or is no name", key.Value)
			}
			out[key.Value] = c.value(n.Content[i+1], append(path, key.Value))
		}
		return out
	}
	return c.scalar(n, path)
}

func (c *specConverter) scalar(n *yaml.Node, path []string) any {
	if n.Tag == "!!null" {
		return nil
	}
	if len(path) == 2 && (path[0] == "env" || path[0] == "labels") {
		return n.Value // as written: 1, true and 2026-01-01 are text here
	}
	if len(path) == 1 {
		switch path[0] {
		case "budget", "max_price_per_hour":
			return n.Value
		case "max_duration":
			s, err := base.ParseSeconds(n.Value)
			if err != nil {
				return c.fail(n, "max_duration: %s", err)
			}
			return s
		}
	}
	switch n.Tag {
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value)
		}
	case "!!bool":
		b, err := strconv.ParseBool(n.Value)
		if err == nil {
			return b
		}
	}
	return n.Value
}

var unknownField = regexp.MustCompile(`^json: unknown field "(.*)"$`)

// explainSpec returns the line and the message for an error of the JSON decoder.
func explainSpec(root *yaml.Node, err error) (line int, message string) {
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		message = fmt.Sprintf("there is no field %q", m[1])
		if like := text.Nearest(m[1], specFields()); like != "" {
			message += fmt.Sprintf("; did you mean %q?", like)
		}
		if key := firstKey(root, m[1]); key != nil {
			return key.Line, message
		}
		return root.Line, message
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		path := strings.Split(wrong.Field, ".")
		return lineOf(root, path), fmt.Sprintf("%s: want %s, not a %s", wrong.Field, kindText(wrong.Type), wrong.Value)
	}
	return root.Line, err.Error()
}

// kindText names a type as people do.
func kindText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "text"
	}
	return "fields"
}

// lineOf returns the line of the last name of path that the document has.
func lineOf(n *yaml.Node, path []string) int {
	line := n.Line
	for _, name := range path {
		key, value := child(n, name)
		if key == nil {
			return line
		}
		line, n = key.Line, value
	}
	return line
}

// child returns the key and the value of a field of a mapping, or nil.
func child(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// firstKey returns the first key with a name, however deep it is nested, or nil.
func firstKey(n *yaml.Node, name string) *yaml.Node {
	if key, _ := child(n, name); key != nil {
		return key
	}
	for _, c := range n.Content {
		if key := firstKey(c, name); key != nil {
			return key
		}
	}
	return nil
}

// specFields returns the names of a spec's fields.
func specFields() []string {
	t := reflect.TypeFor[client.Spec]()
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}
