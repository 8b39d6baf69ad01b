package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
)

// Base is where the API lives.
const Base = "/api/v1"

// The largest bodies, in bytes. The first is for everything except a cluster's spec, whose environment may be long.
const (
	maxBody     = 64 << 10
	maxSpecBody = 512 << 10
)

// table registers routes. Its methods are the only way to register one, and each requires an access rule.
type table struct {
	api     *API
	huma    huma.API
	chi     chi.Router
	rule    map[string]access       // "GET /api/v1/me" → who
	order   []string                // the same keys as they were registered: the order of the reference
	answers map[string]reflect.Type // by the same keys: what a successful answer encodes; absent: no JSON
	all     []Operation
	nouns   map[string]string // the noun of a path, by its first part
}

// Operation is an operation of the API, for what is generated from the table.
type Operation struct {
	Method, Path string // below Base
	Name         string // such as listVolumes
	Summary      string
	Noun         string       // the group in the reference
	In           reflect.Type // a struct with the fields path, query and Body
	Out          reflect.Type // what the answer encodes; nil: a stream
}

// Operations returns the operations of the API, in the order of the reference.
func Operations() []Operation {
	return New(Config{Currency: "USD"}, Deps{}).table.all
}

// add notes an operation with its types.
func (t *table) add(op huma.Operation, in, out reflect.Type) {
	t.all = append(t.all, Operation{op.Method, strings.TrimPrefix(op.Path, Base), op.OperationID, op.Summary, op.Tags[0],
		in,
		out})
}

func (t *table) note(method, path string, rule access) {
	if !rule.public && rule.name == "" {
		panic("api: no access rule for " + method + " " + path)
	}
	t.rule[method+" "+path] = rule
	t.order = append(t.order, method+" "+path)
}

// doc is an operation's entry in the reference: "listTokens: Your organisation's API tokens".
type doc string

// operation makes an operation with its options, and notes its route.
func (t *table) operation(method, path string, rule access, d doc, status int, out reflect.Type,
	opts []option) huma.Operation {
	t.note(method, Base+path, rule)
	name, summary, _ := strings.Cut(string(d), ": ")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	noun := t.nouns[first]
	if noun == "" {
		panic("api: no noun has the path " + path)
	}
	op := huma.Operation{
		OperationID: name, Method: method, Path: Base + path, Summary: summary, Tags: []string{noun},
		Description: rule.describe(), DefaultStatus: status, MaxBodyBytes: maxBody,
		Responses: map[string]*huma.Response{}, Security: []map[string][]string{}, Metadata: map[string]any{},
	}
	for _, o := range opts {
		o(&op)
	}
	addFailures(t.huma.OpenAPI().Components, &op, rule)
	if !rule.public {
		op.Security = []map[string][]string{{"token": {}}}
	}
	if out != nil {
		t.answers[method+" "+Base+path] = out
	}
	if out != nil && out != reflect.TypeFor[nothing]() {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content: map[string]*huma.MediaType{"application/json": {
				Schema: t.huma.OpenAPI().Components.Schemas.Schema(out, true, name+"Answer"),
			}},
		}
	}
	return op
}

// nothing is an answer without a body.
type nothing struct{}

type body[O any] struct{ Body O }

// option changes an operation before it is registered.
type option func(*huma.Operation)

// get registers a read.
func get[I, O any](t *table, path string, rule access, d doc, h func(context.Context, account.Principal, *I) (O, error),
	opts ...option) {
	read(t, t.operation(http.MethodGet, path, rule, d, http.StatusOK, reflect.TypeFor[O](), opts), h)
}

// patch registers a change that sets values, so that repeating it does no harm.
func patch[I, O any](t *table, path string, rule access, d doc, h func(context.Context, account.Principal, *I) (O,
	error), opts ...option) {
	read(t, t.operation(http.MethodPatch, path, rule, d, http.StatusOK, reflect.TypeFor[O](), opts), h)
}

// put registers a change that replaces the whole of a thing.
func put[I, O any](t *table, path string, rule access, d doc, h func(context.Context, account.Principal, *I) (O, error),
	opts ...option) {
	read(t, t.operation(http.MethodPut, path, rule, d, http.StatusOK, reflect.TypeFor[O](), opts), h)
}

// remove registers a DELETE. One that answers nothing is 204.
func remove[I, O any](t *table, path string, rule access, d doc, h func(context.Context, account.Principal, *I) (O,
	error), opts ...option) {
	status := http.StatusOK
	if reflect.TypeFor[O]() == reflect.TypeFor[nothing]() {
		status = http.StatusNoContent
	}
	read(t, t.operation(http.MethodDelete, path, rule, d, status, reflect.TypeFor[O](), opts), h)
}

func read[I, O any](t *table, op huma.Operation,
	h func(context.Context, account.Principal, *I) (O, error)) {
	ids := pathIDsOf(reflect.TypeFor[I]())
	op.Metadata[pathIDsKey] = ids
	t.add(op, reflect.TypeFor[I](), reflect.TypeFor[O]())
	if op.DefaultStatus == http.StatusNoContent {
		huma.Register(t.huma, op, func(ctx context.Context, in *I) (*struct{}, error) {
			err := ids.check(in)
			if err == nil {
				_, err = h(ctx, callerOf(ctx).principal, in)
			}
			if err != nil {
				return nil, t.api.problem(ctx, err)
			}
			return nil, nil
		})
		return
	}
	huma.Register(t.huma, op, func(ctx context.Context, in *I) (*body[O], error) {
		if err := ids.check(in); err != nil {
			return nil, t.api.problem(ctx, err)
		}
		out, err := h(ctx, callerOf(ctx).principal, in)
		if err != nil {
			return nil, t.api.problem(ctx, err)
		}
		return &body[O]{out}, nil
	})
}

// getEncoded is get for a use case that returns the JSON of an O. Its length is sent before it, so that a client reads
// it into one buffer and nothing splits it into chunks.
func getEncoded[O, I any](t *table, path string, rule access, d doc, h func(context.Context, account.Principal,
	*I) ([]byte, error), opts ...option) {
	op := t.operation(http.MethodGet, path, rule, d, http.StatusOK, reflect.TypeFor[O](), opts)
	t.add(op, reflect.TypeFor[I](), reflect.TypeFor[O]())
	huma.Register(t.huma, op, func(ctx context.Context, in *I) (*encoded, error) {
		out, err := h(ctx, callerOf(ctx).principal, in)
		if err != nil {
			return nil, t.api.problem(ctx, err)
		}
		return &encoded{"application/json", strconv.Itoa(len(out)), out}, nil
	})
}

// encoded is an answer that is JSON already.
type encoded struct {
	ContentType   string `header:"Content-Type" hidden:"true"`
	ContentLength string `header:"Content-Length" hidden:"true"`
	Body          []byte
}

// Keyed is part of the input of every POST. (Exported because huma reads only exported fields.)
type Keyed struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"the same key and body within 24 hours do the work once and get the same answer"`
	RawBody        []byte
}

func (k *Keyed) keyed() *Keyed { return k }

// posted is the input of a POST: a struct that embeds Keyed.
type posted[I any] interface {
	*I
	keyed() *Keyed
}

// answer is a successful response whose JSON was stored in the transaction of the use case.
type answer struct {
	Status      int
	ContentType string `header:"Content-Type" hidden:"true"`
	Replayed    string `header:"Idempotent-Replayed" doc:"\"true\" when an earlier request with this key did the work"`
	Body        []byte
}

// post registers a use case of the domain: h calls it with the request's idempotency key and returns its result and
// outcome. If the use case returns another type than O, h passes it idem.As(once, view) and returns the same view.
func post[I, O any, P posted[I]](t *table, path string, rule access, status int, d doc,
	h func(context.Context, account.Principal, *I, idem.Request) (O, idem.Outcome, error), opts ...option) {
	op := t.operation(http.MethodPost, path, rule, d, status, reflect.TypeFor[O](), opts)
	op.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{}}
	ids := pathIDsOf(reflect.TypeFor[I]())
	op.Metadata[pathIDsKey] = ids
	t.add(op, reflect.TypeFor[I](), reflect.TypeFor[O]())
	_, secret := op.Metadata["secret"]
	huma.Register(t.huma, op, func(ctx context.Context, in *I) (*answer, error) {
		p, k, box := callerOf(ctx).principal, P(in).keyed(), t.api.Box
		if strings.ContainsFunc(k.IdempotencyKey, func(c rune) bool { return c < ' ' || c > '~' }) {
			return nil, t.api.problem(ctx, fault.InvalidField("header.Idempotency-Key", "has to be printable ASCII"))
		}
		if err := ids.check(in); err != nil {
			return nil, t.api.problem(ctx, err)
		}
		once := idem.Request{
			Principal: p.Key(),
			Method:    op.Method,
			Path:      pathOf(ctx),
			Key:       k.IdempotencyKey,
			BodyHMAC:  box.MAC(k.RawBody),
			OtherHMAC: box.OtherMAC(k.RawBody),
			Render:    func(result any) (int, any) { return status, result.(O) },
		}
		if p.User.IsZero() {
			once.Principal = "anon:" + hostOf(p.Address)
		}
		if secret {
			once.Seal = box
		}
		result, out, err := h(ctx, p, in, once)
		if err == nil && out.Body == nil {
			out.Status = status
			out.Body, err = json.Marshal(result)
		}
		if err != nil {
			return nil, t.api.problem(ctx, err)
		}
		a := &answer{Status: out.Status, ContentType: "application/json", Body: out.Body}
		if out.Replayed {
			a.Replayed = "true"
		}
		return a, nil
	})
	delete(op.RequestBody.Content, "application/octet-stream") // RawBody is for the key, not for callers
	op.RequestBody.Required = len(op.RequestBody.Content) > 0
}

// withSecret marks a use case whose response contains a secret: it is stored encrypted.
func withSecret(op *huma.Operation) {
	op.Metadata["secret"] = true
}

// withSpec marks a use case whose body the domain package decodes, strictly and naming every fault.
func withSpec(op *huma.Operation) {
	op.SkipValidateBody = true
	op.MaxBodyBytes = maxSpecBody
}

// params adds parameters that the input of a stream does not name, because the handler reads them.
func params(all ...*huma.Param) option {
	return func(op *huma.Operation) { op.Parameters = all }
}

// media is the type of a stream that is not text.
func media(name string, schema *huma.Schema) option {
	return func(op *huma.Operation) {
		op.Responses["200"] = &huma.Response{
			Description: "OK", Content: map[string]*huma.MediaType{name: {Schema: schema}},
		}
	}
}

// stream registers a read whose handler writes the answer, or returns an error before it has written. The request's
// context ends soon after the token stopped counting.
func stream[I any](t *table, path string, rule access, d doc,
	h func(http.ResponseWriter, *http.Request, account.Principal, *I) error, opts ...option) {
	opts = append([]option{media("text/plain", &huma.Schema{Type: huma.TypeString})}, opts...)
	op := t.operation(http.MethodGet, path, rule, d, http.StatusOK, nil, opts)
	ids := pathIDsOf(reflect.TypeFor[I]())
	op.Metadata[pathIDsKey] = ids
	t.add(op, reflect.TypeFor[I](), nil)
	huma.Register(t.huma, op, func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(c huma.Context) {
			r, w := humachi.Unwrap(c)
			p := callerOf(r.Context()).principal
			ctx, cancel := t.api.Accounts.Credentials.WhileIn(r.Context(), p.Credential(rule.scopes...))
			defer cancel()
			head := &headWriter{ResponseWriter: w}
			if r.Method == http.MethodHead {
				w = head
			}
			err := ids.check(in)
			if err == nil {
				err = h(w, r.WithContext(ctx), p, in)
			}
			if err != nil && !head.sent {
				writeProblem(w, t.api.problem(r.Context(), err))
			}
		}}, nil
	})
}

// plain registers a handler outside Base that renders itself: health, webhook, documents.
func (t *table) plain(method, path string, rule access, h http.HandlerFunc) {
	t.note(method, path, rule)
	t.chi.MethodFunc(method, path, h)
}

type pathKey struct{}

func pathOf(ctx context.Context) string {
	s, _ := ctx.Value(pathKey{}).(string)
	return s
}

// list is the answer of every list.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"cursor of the next page; null on the last"`
}

// cursor reads After, "" being the start.
func cursor[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](p client.PageOf) (T, error) {
	var v T
	if err := P(&v).UnmarshalText([]byte(p.After)); err != nil {
		return v, fault.InvalidField("query.after", "is not a cursor of this list")
	}
	return v, nil
}

// cut returns a page of rows that were read with a limit of one more than requested.
func cut[R, T any](rows []R, limit int, view func(R) T, id func(R) string) list[T] {
	out := list[T]{Items: make([]T, 0, min(len(rows), limit))}
	for i, r := range rows {
		if i == limit {
			next := id(rows[limit-1])
			out.Next = &next
			break
		}
		out.Items = append(out.Items, view(r))
	}
	return out
}

// parseID reads an id from the path of a stream. A text that is no id of the kind names nothing, so it is not found.
func parseID[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](s, noun string) (T, error) {
	var v T
	if err := P(&v).UnmarshalText([]byte(s)); err != nil || v.IsZero() {
		return v, notFound(noun)
	}
	return v, nil
}
