package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

// maxSpecFile is the most bytes of a spec file.
const maxSpecFile = 1 << 20

// readSpec reads a spec in YAML or JSON, which is YAML as well. Errors name the line and the field. For people, it
// accepts more than the API: every text and every amount without quotes, max_duration as 90m or 2h, env and labels as
// lists of KEY=VALUE, ports as 8888 or 8888/http, and the merge keys of YAML. Fields of the file that begin with x- are
// ignored: they are where anchors are defined.
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
	v := c.value(root, reflect.TypeFor[client.Spec](), "")
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
		return fault.New(fault.Invalid, "%s: %s", name, err)
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

// enter counts a node, and returns false if there are too many or they are nested too deeply. leave ends it.
func (c *specConverter) enter(n *yaml.Node) bool {
	c.depth++
	if c.nodes++; c.nodes > maxSpecNodes || c.depth > 20 {
		c.fail(n, "the spec is nested too deeply or too large")
	}
	return c.err == nil
}

func (c *specConverter) leave() { c.depth-- }

// pair is a field of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs returns the fields of a mapping, with those that merge keys add: what the mapping has itself counts more, and
// of several merged mappings the first one.
func (c *specConverter) pairs(n *yaml.Node, at string) []pair {
	if !c.enter(n) {
		return nil
	}
	defer c.leave()
	var own, merged []pair
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			merged = append(merged, c.merged(value, at)...)
		case key.Kind != yaml.ScalarNode:
			c.fail(key, "a field is no name")
		case seen[key.Value]:
			c.fail(key, "the field %q stands twice", under(at, key.Value))
		default:
			seen[key.Value] = true
			own = append(own, pair{key, value})
		}
	}
	for _, p := range merged {
		if !seen[p.key.Value] {
			seen[p.key.Value] = true
			own = append(own, p)
		}
	}
	return own
}

// merged returns the fields of the mapping, or the mappings, that a merge key names.
func (c *specConverter) merged(n *yaml.Node, at string) []pair {
	switch {
	case !c.enter(n):
		return nil
	case n.Kind == yaml.AliasNode:
		n = n.Alias
	}
	defer c.leave()
	switch n.Kind {
	case yaml.MappingNode:
		return c.pairs(n, at)
	case yaml.SequenceNode:
		var out []pair
		for _, e := range n.Content {
			out = append(out, c.merged(e, at)...)
		}
		return out
	}
	c.fail(n, "<<: want fields, or a list of them")
	return nil
}

func under(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}
