package apifuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	if responses[key] == nil {
		if status < 400 {
			return fmt.Errorf("status %d is not in the document", status)
		}
		key = "default"
	}
	content := object(object(responses[key])["content"])
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
	s, err := c.schema(method, template, key, media)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return s.Validate(v)
}

func (c *Checker) schema(method, template, status, media string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	at := fmt.Sprintf("%s#/paths/%s/%s/responses/%s/content/%s/schema", docURL, escapeFragment(escape(template)),
		strings.ToLower(method), status, escape(media))
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
