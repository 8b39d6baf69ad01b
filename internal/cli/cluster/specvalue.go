package cluster

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/text"
)

// value converts what stands at a place of the spec, of which t is the type there.
func (c *specConverter) value(n *yaml.Node, t reflect.Type, at string) any {
	if !c.enter(n) {
		return nil
	}
	defer c.leave()
	if n.Kind == yaml.AliasNode {
		return c.value(n.Alias, t, at)
	}
	if n.Tag == "!!null" {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(textType) || reflect.PointerTo(t).Implements(jsonType):
		return c.parsed(n, t, at)
	case t == portType && n.Kind == yaml.ScalarNode:
		return c.port(n, at)
	case t.Kind() == reflect.Struct:
		return c.fields(n, t, at)
	case t.Kind() == reflect.Map:
		return c.texts(n, at)
	case t.Kind() == reflect.Slice:
		return c.list(n, t.Elem(), at)
	}
	return c.scalar(n, t, at)
}

var (
	textType  = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonType  = reflect.TypeFor[json.Unmarshaler]()
	portType  = reflect.TypeFor[client.Port]()
	mountType = reflect.TypeFor[client.Mount]()
)

// parsed converts a text that its type reads, such as an amount or an id.
func (c *specConverter) parsed(n *yaml.Node, t reflect.Type, at string) any {
	if n.Kind != yaml.ScalarNode {
		return c.fail(n, "%s: want one value, not %s", at, kindOfNode(n))
	}
	quoted, err := json.Marshal(n.Value)
	if err == nil {
		err = json.Unmarshal(quoted, reflect.New(t).Interface())
	}
	if err != nil {
		return c.fail(n, "%s: %s, not %q", at, err, text.Ellipsis(n.Value, 40))
	}
	return n.Value
}

func (c *specConverter) fields(n *yaml.Node, t reflect.Type, at string) any {
	if n.Kind != yaml.MappingNode {
		if t == mountType {
			return c.fail(n, "%s: want fields such as {volume: vol_…, path: /data}, not %s", at, kindOfNode(n))
		}
		return c.fail(n, "%s: want fields (%s), not %s", at, strings.Join(fieldNames(t), ", "), kindOfNode(n))
	}
	out := map[string]any{}
	for _, p := range c.pairs(n, at) {
		name := p.key.Value
		if at == "" && strings.HasPrefix(name, "x-") {
			continue
		}
		field, ok := fieldOf(t, name)
		if !ok {
			message := fmt.Sprintf("there is no field %q", under(at, name))
			if like := text.Nearest(name, fieldNames(t)); like != "" {
				message += fmt.Sprintf("; did you mean %q?", like)
			}
			return c.fail(p.key, "%s", message)
		}
		if under(at, name) == "max_duration" && p.value.Kind == yaml.ScalarNode && p.value.Tag != "!!null" {
			s, err := base.ParseSeconds(p.value.Value)
			if err != nil {
				return c.fail(p.value, "max_duration: %s", err)
			}
			out[name] = s
			continue
		}
		out[name] = c.value(p.value, field, under(at, name))
	}
	return out
}

// texts converts env and labels: fields whose values are texts as written (1, true and 2026-01-01 are text here), or a
// list of KEY=VALUE.
func (c *specConverter) texts(n *yaml.Node, at string) any {
	out := map[string]any{}
	switch n.Kind {
	case yaml.MappingNode:
		for _, p := range c.pairs(n, at) {
			out[p.key.Value] = c.word(p.value, under(at, p.key.Value))
		}
	case yaml.SequenceNode:
		for i, e := range n.Content {
			item := fmt.Sprintf("%s[%d]", at, i)
			if e.Kind == yaml.AliasNode {
				e = e.Alias
			}
			if e.Kind == yaml.MappingNode && len(e.Content) == 2 { // "- KEY: VALUE"
				out[e.Content[0].Value] = c.word(e.Content[1], item)
				continue
			}
			k, v, ok := strings.Cut(e.Value, "=")
			if e.Kind != yaml.ScalarNode || !ok {
				return c.fail(e, "%s: want KEY=VALUE, not %s", item, kindOfNode(e))
			}
			out[k] = v
		}
	default:
		return c.fail(n, "%s: want fields KEY: VALUE, or a list of KEY=VALUE, not %s", at, kindOfNode(n))
	}
	return out
}

// word converts a scalar to the text that is written there. null is the empty text.
func (c *specConverter) word(n *yaml.Node, at string) any {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		return c.fail(n, "%s: want text, not %s", at, kindOfNode(n))
	case n.Tag == "!!null":
		return ""
	}
	return n.Value
}

func (c *specConverter) list(n *yaml.Node, of reflect.Type, at string) any {
	if n.Kind != yaml.SequenceNode {
		switch {
		case of == portType:
			return c.fail(n, "%s: want a list such as [8888/http, 22], not %s", at, kindOfNode(n))
		case of.Kind() == reflect.String:
			return c.fail(n, "%s: want a list such as [python, train.py], or for a shell [bash, -c, \"…\"], not %s", at,
				kindOfNode(n))
		}
		return c.fail(n, "%s: want a list, not %s", at, kindOfNode(n))
	}
	out := make([]any, len(n.Content))
	for i, e := range n.Content {
		item := fmt.Sprintf("%s[%d]", at, i)
		if e.Tag == "!!null" {
			return c.fail(e, "%s: is empty: put what is meant in quotes", item)
		}
		out[i] = c.value(e, of, item)
	}
	return out
}

// port converts PORT or PORT/http, as --port takes it.
func (c *specConverter) port(n *yaml.Node, at string) any {
	number, protocol, _ := strings.Cut(n.Value, "/")
	p, err := strconv.ParseUint(number, 10, 16)
	switch {
	case err == nil:
		return client.Port{Port: int(p), Protocol: base.FirstOf(protocol, "tcp")}
	case strings.Contains(number, ":"):
		return c.fail(n, "%s: want PORT or PORT/http, not %q: ports have the same number inside and outside", at, n.Value)
	}
	return c.fail(n, "%s: want PORT, which is tcp, or PORT/http, not %q", at, n.Value)
}

func (c *specConverter) scalar(n *yaml.Node, t reflect.Type, at string) any {
	if n.Kind != yaml.ScalarNode {
		return c.fail(n, "%s: want %s, not %s", at, kindText(t), kindOfNode(n))
	}
	v, err := scalarOf(n, t)
	if err != nil {
		return c.fail(n, "%s: want %s, not %q", at, kindText(t), text.Ellipsis(n.Value, 40))
	}
	return v
}

// scalarOf reads a scalar as YAML does for a variable of the type. A text is what is written there.
func scalarOf(n *yaml.Node, t reflect.Type) (any, error) {
	switch t.Kind() {
	case reflect.String:
		return n.Value, nil
	case reflect.Bool:
		var v bool
		err := n.Decode(&v)
		return v, err
	case reflect.Float64:
		var v float64
		err := n.Decode(&v)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			err = errors.New("not a number")
		}
		return v, err
	}
	var v int64
	if n.Tag != "!!int" {
		return v, errors.New("not a whole number")
	}
	err := n.Decode(&v)
	return v, err
}

// fieldOf returns the type of the field with a name in JSON, in the same case.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		if field, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); field == name && name != "-" {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

// fieldNames returns the names of a type's fields in JSON.
func fieldNames(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
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
	}
	return "text"
}

// kindOfNode names what stands in the file.
func kindOfNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "fields"
	}
	return strconv.Quote(text.Ellipsis(n.Value, 40))
}
