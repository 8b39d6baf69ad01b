package apifuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Checker holds answers to the document's schemas. Safe for concurrent use.
type Checker struct {
	doc      map[string]any
	compiler *jsonschema.Compiler

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema
}

const docURL = "https://muster.test/openapi.json"

// Read decodes an OpenAPI document and makes its checker.
func Read(raw []byte) (map[string]any, *Checker, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, err
	}
	c := &Checker{doc: object(v), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	return c.doc, c, c.compiler.AddResource(docURL, v)
}

// Check returns what is wrong with an answer: an internal error, a status or type that the document does not name for
// the operation, a body that does not fit the schema.
func (c *Checker) Check(method, template string, status int, contentType string, body []byte) error {
	if status >= 500 && status != 503 {
		return fmt.Errorf("status %d", status)
	}
	responses := object(object(object(object(c.doc["paths"])[template])[strings.ToLower(method)])["responses"])
	key := fmt.Sprint(status)
	if status == http.StatusServiceUnavailable && responses[key] == nil {
		key = "default"
	}
	if responses[key] == nil {
		return fmt.Errorf("status %d is not in the document", status)
	}
	at := fmt.Sprintf("/paths/%s/%s/responses/%s", escape(template), strings.ToLower(method), key)
	answer := object(responses[key])
	if ref, ok := answer["$ref"].(string); ok { // an answer that several operations share
		at = strings.TrimPrefix(ref, "#")
		answer = object(object(object(c.doc["components"])["responses"])[path.Base(at)])
	}
	content := object(answer["content"])
	media, _, _ := strings.Cut(contentType, ";")
	if len(content) == 0 && len(body) == 0 {
		return nil
	}
	if !strings.HasSuffix(media, "json") {
		if status >= 400 || (len(content) > 0 && content[media] == nil && content["text/plain"] == nil) {
			return fmt.Errorf("type %q of status %d is not in the document", contentType, status)
		}
		return nil
	}
	if content[media] == nil {
		return fmt.Errorf("type %q of status %d is not in the document", contentType, status)
	}
	s, err := c.schema(at + "/content/" + escape(media) + "/schema")
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return s.Validate(v)
}

// schema compiles the schema at a place of the document.
func (c *Checker) schema(pointer string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := docURL + "#" + escapeFragment(pointer)
	if s := c.schemas[at]; s != nil {
		return s, nil
	}
	s, err := c.compiler.Compile(at)
	if err != nil {
		return nil, err
	}
	c.schemas[at] = s
	return s, nil
}

// escape escapes one part of a JSON pointer.
func escape(part string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(part) }

// Template returns the path of the document that a request's path matches, and "" if none does. A fixed part goes
// before a parameter.
func (c *Checker) Template(method, requested string) string {
	best, fixed := "", -1
	parts := strings.Split(requested, "/")
	for template, item := range object(c.doc["paths"]) {
		if object(item)[strings.ToLower(method)] == nil {
			continue
		}
		if n := matches(strings.Split(template, "/"), parts); n > fixed {
			best, fixed = template, n
		}
	}
	return best
}

// matches counts the fixed parts of a template that a path matches, and returns -1 if it does not match.
func matches(template, parts []string) int {
	if len(template) != len(parts) {
		return -1
	}
	n := 0
	for i, t := range template {
		switch {
		case t == parts[i]:
			n++
		case !strings.HasPrefix(t, "{"):
			return -1
		}
	}
	return n
}

// escapeFragment percent-encodes what a URL's fragment cannot hold.
func escapeFragment(s string) string {
	return strings.NewReplacer("{", "%7B", "}", "%7D").Replace(s)
}

// Decode reads a JSON answer, nil when it is none.
func Decode(body []byte) any {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return nil
	}
	return v
}
