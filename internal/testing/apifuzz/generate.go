// Package apifuzz makes random requests from an OpenAPI document and holds the answers to it. Tests use it.
//
// A request is mostly plausible, so that it gets past validation, and often wrong in one place: a NUL, a number out of
// range, a value of another type, an identifier of another org's object. Identifiers come from earlier answers.
package apifuzz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Request is a random request.
type Request struct {
	Method, Path string // Path with its query, percent-encoded
	Template     string // the path in the document: "/api/v1/clusters/{id}"
	Body         string // "" without one
	Headers      map[string]string
}

// String is the request as text, for failure messages.
func (r Request) String() string {
	return fmt.Sprintf("%s %s\nheaders %q\nbody %q", r.Method, r.Path, r.Headers, r.Body)
}

// Memory holds texts of earlier answers by the name of their field, to be sent again. Safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	byName map[string][]string
}

// maxRemembered is how many texts of one name are remembered.
const maxRemembered = 200

// Remember takes the texts of a decoded JSON answer.
func (m *Memory) Remember(noun string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			if s, ok := e.(string); ok && s != "" && len(s) < 200 {
				if name == "id" {
					m.add(noun, s)
				}
				m.add(name, s)
			}
			if name == "items" { // of a list: the noun is the list's
				name = noun
			}
			m.Remember(name, e)
		}
	case []any:
		for _, e := range v {
			m.Remember(noun, e)
		}
	}
}

func (m *Memory) add(name, s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byName == nil {
		m.byName = map[string][]string{}
	}
	known := m.byName[name]
	switch {
	case slices.Contains(known, s):
	case len(known) < maxRemembered:
		m.byName[name] = append(known, s)
	default:
		known[len(s)*7%maxRemembered] = s
	}
}

func (m *Memory) pick(r *rand.Rand, name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byName[name]
	if len(known) == 0 {
		return "", false
	}
	return known[r.IntN(len(known))], true
}

// Generator makes the requests of one seed. Not safe for concurrent use; Memory is shared.
type Generator struct {
	doc    map[string]any
	ops    []operation
	memory *Memory
	rnd    *rand.Rand
	valid  map[string]string // bodies that are known to be valid, by operation
}

type operation struct {
	method, path string
	spec         map[string]any
}

// New makes a generator for an OpenAPI document. It leaves out the operations that skip names, as "POST /path".
func New(doc map[string]any, memory *Memory, seed uint64, skip func(method, path string) bool) *Generator {
	g := &Generator{doc: doc, memory: memory, rnd: rand.New(rand.NewPCG(seed, 1))}
	for path, methods := range object(doc["paths"]) {
		for method, spec := range object(methods) {
			if method = strings.ToUpper(method); !skip(method, path) {
				g.ops = append(g.ops, operation{method, path, object(spec)})
			}
		}
	}
	slices.SortFunc(g.ops, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return g
}

// SetValid gives bodies that are known to be valid, JSON objects by operation: "POST /clusters". More than half of the
// operation's requests are such a body with at most two fields changed.
func (g *Generator) SetValid(bodies map[string]string) { g.valid = bodies }

// Operations are those that the generator chooses from, as "GET /path/{id}".
func (g *Generator) Operations() []string {
	out := make([]string, len(g.ops))
	for i, op := range g.ops {
		out[i] = op.method + " " + op.path
	}
	return out
}

// Next is another request.
func (g *Generator) Next() Request {
	op := g.ops[g.rnd.IntN(len(g.ops))]
	r := Request{Method: op.method, Template: op.path, Headers: map[string]string{}}
	path, query := op.path, url.Values{}
	for _, name := range pathNames(op.path) {
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(g.pathValue(op.path, name)), 1)
	}
	for _, p := range list(op.spec["parameters"]) {
		p := g.resolve(object(p))
		name, _ := p["name"].(string)
		switch p["in"] {
		case "query":
			for range 1 + g.chance(3) {
				if required, _ := p["required"].(bool); required || g.rnd.IntN(3) > 0 {
					query.Add(name, fmt.Sprint(g.value(name, g.resolve(object(p["schema"])), 0)))
				}
			}
		case "header":
			if g.rnd.IntN(2) == 0 {
				r.Headers[name] = g.header()
			}
		}
	}
	if g.chance(3) > 0 {
		query.Add(g.text(""), g.text(""))
	}
	r.Path = path
	if q := query.Encode(); q != "" {
		r.Path += "?" + q
	}
	if body := g.body(op); body != "" {
		r.Body = body
		r.Headers["Content-Type"] = "application/json"
		if g.chance(2) > 0 {
			r.Headers["Content-Type"] = g.choose("text/plain", "application/xml", "multipart/form-data; boundary=x", "",
				"application/json; charset=latin1")
		}
	}
	return r
}

// chance is 1 in percent of a hundred cases, else 0.
func (g *Generator) chance(percent int) int {
	if g.rnd.IntN(100) < percent {
		return 1
	}
	return 0
}

func (g *Generator) choose(of ...string) string { return of[g.rnd.IntN(len(of))] }

func pathNames(path string) (names []string) {
	for _, part := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// pathValue is mostly an identifier of the noun before it in the path.
func (g *Generator) pathValue(path, name string) string {
	before, _, _ := strings.Cut(path, "/{"+name+"}")
	noun := before[strings.LastIndexByte(before, '/')+1:]
	if g.chance(85) > 0 {
		if s, ok := g.memory.pick(g.rnd, noun); ok {
			return s
		}
		if s, ok := g.memory.pick(g.rnd, name); ok {
			return s
		}
	}
	if s := g.text(name); s != "" && s != "." && s != ".." {
		return s
	}
	return "x"
}

func (g *Generator) header() string {
	s := g.choose("k1", "k2", fmt.Sprint("k", g.rnd.IntN(1000)), strings.Repeat("k", 300), "ключ", "a\x00b", "")
	return s
}

// body is a JSON document for the operation, or something that is none.
func (g *Generator) body(op operation) string {
	if op.method == "GET" || op.method == "DELETE" {
		if g.chance(2) > 0 {
			return "{}"
		}
		return ""
	}
	content := object(object(object(op.spec["requestBody"])["content"])["application/json"])
	v := g.value("", g.resolve(object(content["schema"])), 0)
	if valid := g.valid[op.method+" "+op.path]; valid != "" && g.chance(60) > 0 {
		v = g.change(valid, object(v))
	}
	raw, err := json.Marshal(v)
	if err != nil {
		raw = []byte("{}")
	}
	body := string(raw)
	if g.chance(6) > 0 {
		return g.choose("", "null", "[]", `""`, "{", body[:len(body)/2], strings.Repeat("[", 5000), body+body, "{}",
			`{"\u0000":1}`,
			"\xff\xfe", "{\"name\":\"\xff\"}", strings.Replace(body, `"`, `"\u0000`, 3))
	}
	return body
}

// change is a valid body with at most two fields taken from another.
func (g *Generator) change(valid string, from map[string]any) map[string]any {
	var out map[string]any
	if err := json.Unmarshal([]byte(valid), &out); err != nil {
		panic(err)
	}
	names := slices.Sorted(maps.Keys(from))
	for range min(g.rnd.IntN(3), len(names)) {
		name := names[g.rnd.IntN(len(names))]
		out[name] = from[name]
	}
	return out
}

// resolve follows references to the document's components.
func (g *Generator) resolve(s map[string]any) map[string]any {
	for range 10 {
		ref, ok := s["$ref"].(string)
		if !ok {
			break
		}
		at := any(g.doc)
		for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			at = object(at)[part]
		}
		s = object(at)
	}
	return s
}

// value is a value of the schema, or one that is not.
func (g *Generator) value(name string, s map[string]any, depth int) any {
	if g.chance(4) > 0 {
		return g.odd()
	}
	if of := list(s["anyOf"]); len(of) > 0 {
		return g.value(name, g.resolve(object(of[g.rnd.IntN(len(of))])), depth)
	}
	if of := list(s["enum"]); len(of) > 0 && g.chance(90) > 0 {
		return of[g.rnd.IntN(len(of))]
	}
	if of := list(s["examples"]); len(of) > 0 && g.chance(50) > 0 {
		return of[g.rnd.IntN(len(of))]
	}
	switch g.typeOf(s) {
	case "object":
		return g.object(s, depth)
	case "array":
		n := g.rnd.IntN(3)
		if g.chance(2) > 0 {
			n = 300
		}
		items := g.resolve(object(s["items"]))
		out := make([]any, n)
		for i := range out {
			out[i] = g.value(strings.TrimSuffix(name, "s"), items, depth+1)
		}
		return out
	case "integer":
		return g.integer()
	case "number":
		return []any{g.integer(), 0.5, -1.25, 1e300}[g.rnd.IntN(4)]
	case "boolean":
		return g.rnd.IntN(2) == 0
	case "string":
		return g.text(name)
	}
	return g.odd()
}

// typeOf is the schema's type, one of them when it has several.
func (g *Generator) typeOf(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		if len(t) > 0 {
			s, _ := t[g.rnd.IntN(len(t))].(string)
			return s
		}
	}
	if s["properties"] != nil {
		return "object"
	}
	return ""
}

func (g *Generator) object(s map[string]any, depth int) map[string]any {
	out := map[string]any{}
	if depth > 4 {
		return out
	}
	required := list(s["required"])
	properties := object(s["properties"])
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	share := []int{5, 30, 90}[g.rnd.IntN(3)] // of the optional ones
	for _, name := range names {
		if name == "$schema" {
			continue
		}
		if p := g.resolve(object(properties[name])); slices.Contains(required, any(name)) && g.chance(98) > 0 ||
			g.chance(share) > 0 {
			out[name] = g.value(name, p, depth+1)
		}
	}
	if more, ok := s["additionalProperties"].(map[string]any); ok {
		for range g.rnd.IntN(3) {
			out[g.text("key")] = g.value("", g.resolve(more), depth+1)
		}
	}
	if g.chance(3) > 0 {
		out[g.text("")] = g.odd()
	}
	return out
}

func (g *Generator) integer() any {
	return []any{-1, 0, 1, 2, 3, 8, 60, 100, 8080, 65536, 1 << 31, int64(1) << 62, -(int64(1) << 62)}[g.rnd.IntN(13)]
}

func (g *Generator) odd() any {
	return []any{nil, true, -1, 1e300, "", "\x00", []any{}, []any{nil}, map[string]any{},
		map[string]any{"a": map[string]any{"b": "c"}}, "💥", g.text("")}[g.rnd.IntN(12)]
}

// samples are plausible texts by the name of their field.
var samples = map[string][]string{
	"image":              {"registry.test/job:1", "demo", "ubuntu", "UPPER/case:tag", "a@sha256:00"},
	"gpu":                {"gpu_model=H100", "vram_gb>=80 gpu_model in [H100,A100]", "vram_gb>"},
	"q":                  {"gpu_model=H100", "price_per_gpu_hour<2", "region=", "(", "a and b", "vram_gb>=1e400"},
	"sort":               {"price_per_gpu_hour", "-reliability", "nothing"},
	"amount":             {"10.00", "0", "-1", "0.001", "1e9", "99999999999999999999", "NaN", "10,00"},
	"budget":             {"50.00", "0.0001", "-5"},
	"max_price_per_hour": {"12.00", "0", "-0"},
	"price_per_gpu_hour": {"2.00", "0", "1000000000"},
	"command":            {"train", ""},
	"country":            {"DE", "US", "XX", "de"},
	"email":              {"ada@example.com", "no", "a@b", "x\r\ny@z.de"},
	"password":           {"short"},
	"month":              {"2026-10", "2026-13", "0000-00", "9999-12"},
	"from":               {"2026-01-01T00:00:00Z", "2026-01-01", "9999-12-31", "-1"},
	"to":                 {"2026-12-01T00:00:00Z", "2026-02-30", "0001-01-01T00:00:00Z"},
	"after":              {"abc", "e30", "e30="},
	"year":               {"2026", "0", "99999"},
	"action":             {"release", "restart", "drain", "resume", "retire", "reclaim"},
	"reason":             {"because"},
	"code":               {"WELCOME"},
	"wait":               {"running", "released", "nowhere"},
	"timeout":            {"0", "1"},
	"follow":             {"false"},
	"region":             {"eu-test"},
	"port":               {"8888", "0", "-1", "65536"},
	"scopes":             {"read", "clusters", "hosts", "billing", "members", "admin"},
	"scope":              {"read", "clusters", "host", "any", "fabric"},
	"currency":           {"USD", "EUR"},
	"public_key": {"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ a@b",
		"ssh-rsa AAAA"},
	"group": {"cluster", "day", "project", "lease", "label"},
	"by":    {"cluster", "day", "host"},
	"step":  {"60", "0"},
	"limit": {"1", "100", "0", "-1", "100000"},
}

// text is a text for a field: one that was seen, a plausible one, or one that is not.
func (g *Generator) text(name string) string {
	if n := g.rnd.IntN(10); n < 4 {
		if s, ok := g.memory.pick(g.rnd, name); ok {
			return s
		}
	} else if n == 4 && strings.HasSuffix(name, "_id") {
		if s, ok := g.memory.pick(g.rnd, "id"); ok {
			return s
		}
	}
	if of := samples[name]; len(of) > 0 && g.chance(80) > 0 {
		return of[g.rnd.IntN(len(of))]
	}
	return g.choose("", "a", "name", "x-1", "0", "-1", "1.5", "true", "null", "\x00", "a\x00b", "é", "\u202e", "💥", "'",
		`"`, "%00", "%", "\\",
		"<b>", "a b", "\n", "\r\n", "../..", "{}", "[]", ";", strings.Repeat("a", 300), strings.Repeat("é", 5000), "\xff",
		"\xed\xa0\x80",
		"00000000-0000-0000-0000-000000000000", "cl_00000000000000000000000000", "9223372036854775808", "1e309",
		"2026-02-30T25:00:00Z")
}

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

func list(v any) []any { l, _ := v.([]any); return l }

// Text is a random text for the named field of a form or parameter: plausible, odd, or one of an earlier answer.
func (g *Generator) Text(name string) string {
	if g.chance(10) > 0 {
		return fmt.Sprint(g.odd())
	}
	return g.text(name)
}

// Intn is a random number below n.
func (g *Generator) Intn(n int) int { return g.rnd.IntN(n) }
