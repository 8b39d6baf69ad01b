package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stripe/stripe-mock/embedded"
)

// schema is what we check of a JSON schema in Stripe's OpenAPI description.
type schema struct {
	Type       string             `json:"type"`
	Ref        string             `json:"$ref"`
	Nullable   bool               `json:"nullable"`
	Enum       []any              `json:"enum"`
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	Additional json.RawMessage    `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	AnyOf      []*schema          `json:"anyOf"`
	MaxLength  *int               `json:"maxLength"`
}

type openAPI struct {
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Content map[string]struct {
				Schema *schema `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

// published is Stripe's description of the API version we imitate, and of the meters that later ones describe.
var published = sync.OnceValues(func() (*openAPI, error) {
	o, err := readOpenAPI(embedded.OpenAPISpec)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile("testdata/meters.json")
	if err != nil {
		return nil, err
	}
	m, err := readOpenAPI(raw)
	if err != nil {
		return nil, err
	}
	maps.Copy(o.Paths, m.Paths)
	maps.Copy(o.Components.Schemas, m.Components.Schemas)
	return o, nil
})

func readOpenAPI(raw []byte) (*openAPI, error) {
	var o openAPI
	err := json.Unmarshal(raw, &o)
	return &o, err
}

// path is the described path that a request's path is an instance of.
func (o *openAPI) path(p string) string {
	for d := range o.Paths {
		if pathMatches(d, p) && !strings.Contains(p, "{") {
			return d
		}
	}
	return ""
}

func pathMatches(described, p string) bool {
	a, b := strings.Split(described, "/"), strings.Split(p, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !strings.HasPrefix(a[i], "{") {
			return false
		}
	}
	return true
}

// checkAnswer reports what in an answer differs from the description.
func (o *openAPI) checkAnswer(method, path string, status int, body []byte) []string {
	d := o.path(path)
	op, ok := o.Paths[d][strings.ToLower(method)]
	if !ok {
		return []string{fmt.Sprintf("%s %s is not described", method, path)}
	}
	code := fmt.Sprint(status)
	if _, ok := op.Responses[code]; !ok {
		code = "default"
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return []string{err.Error()}
	}
	return o.check("", op.Responses[code].Content["application/json"].Schema, v)
}

func (o *openAPI) resolve(s *schema) *schema {
	for s.Ref != "" {
		s = o.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

func (o *openAPI) check(at string, s *schema, v any) (bad []string) {
	nullable := s.Nullable
	if s = o.resolve(s); v == nil {
		if !nullable && !s.Nullable && (s.Type != "" || len(s.AnyOf) > 0) {
			return []string{at + ": null"}
		}
		return nil
	}
	if len(s.AnyOf) > 0 {
		for _, a := range s.AnyOf {
			found := o.check(at, a, v)
			if len(found) == 0 {
				return nil
			}
			bad = append(bad, found...)
		}
		return bad
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return []string{fmt.Sprintf("%s: %v is none of %v", at, v, s.Enum)}
	}
	switch s.Type {
	case "object":
		return o.checkObject(at, s, v)
	case "array":
		l, ok := v.([]any)
		if !ok {
			return []string{at + ": not an array"}
		}
		for i, x := range l {
			bad = append(bad, o.check(fmt.Sprintf("%s[%d]", at, i), s.Items, x)...)
		}
	case "string":
		if t, ok := v.(string); !ok || s.MaxLength != nil && len(t) > *s.MaxLength {
			return []string{fmt.Sprintf("%s: %v is not a string, or too long", at, v)}
		}
	case "integer":
		if n, ok := v.(float64); !ok || n != float64(int64(n)) {
			return []string{fmt.Sprintf("%s: %v is not an integer", at, v)}
		}
	case "number":
		if _, ok := v.(float64); !ok {
			return []string{fmt.Sprintf("%s: %v is not a number", at, v)}
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return []string{fmt.Sprintf("%s: %v is not a boolean", at, v)}
		}
	}
	return bad
}

func (o *openAPI) checkObject(at string, s *schema, v any) (bad []string) {
	m, ok := v.(map[string]any)
	if !ok {
		return []string{at + ": not an object"}
	}
	for _, r := range s.Required {
		if _, there := m[r]; !there {
			bad = append(bad, at+"."+r+": missing")
		}
	}
	for k, x := range m {
		p, known := s.Properties[k]
		switch {
		case known:
			bad = append(bad, o.check(at+"."+k, p, x)...)
		case !strings.HasPrefix(k, "x_") && len(s.Properties) > 0 && len(s.Additional) == 0:
			bad = append(bad, at+"."+k+": Stripe has no such field")
		}
	}
	return bad
}

// watched is a handler whose answers below /v1 are held to Stripe's description.
func watched(t testing.TB, o *openAPI, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := &keeper{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(k, r)
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			return
		}
		for _, bad := range o.checkAnswer(r.Method, r.URL.Path, k.status, k.body) {
			t.Errorf("%s %s answered %d: %s", r.Method, r.URL.Path, k.status, bad)
		}
	})
}

// keeper keeps a copy of what is answered.
type keeper struct {
	http.ResponseWriter
	status int
	body   []byte
}

func (k *keeper) WriteHeader(status int) {
	k.status = status
	k.ResponseWriter.WriteHeader(status)
}

func (k *keeper) Write(b []byte) (int, error) {
	k.body = append(k.body, b...)
	return k.ResponseWriter.Write(b)
}

// eventsAsPublished holds the events that wait to the description of an event and of what they carry.
func (o *openAPI) eventsAsPublished(t testing.TB, ds []Delivery) {
	t.Helper()
	for _, d := range ds {
		var e struct {
			Type string `json:"type"`
			Data struct {
				Object map[string]any `json:"object"`
			} `json:"data"`
		}
		var whole any
		if err := json.Unmarshal(d.Payload, &whole); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(d.Payload, &e); err != nil {
			t.Fatal(err)
		}
		kind, _ := e.Data.Object["object"].(string)
		s := o.Components.Schemas[kind]
		if s == nil {
			t.Errorf("%s carries %q, which Stripe does not have", e.Type, kind)
			continue
		}
		for _, bad := range append(o.check("event", o.Components.Schemas["event"], whole),
			o.check(e.Type, s, any(e.Data.Object))...) {
			t.Error(bad)
		}
	}
}
