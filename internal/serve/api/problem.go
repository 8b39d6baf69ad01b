package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/fault"
)

// Problem is the body of every answer that is not a success (RFC 9457, application/problem+json).
type Problem struct {
	Title  string        `json:"title" doc:"the kind of failure in words"`
	Status int           `json:"status"`
	Detail string        `json:"detail" doc:"what went wrong, for people"`
	Code   fault.Kind    `json:"code" doc:"the kind of failure, for programs" enum:"unauthorized,forbidden,not_found,validation_failed,no_capacity,insufficient_funds,quota_exceeded,conflict,idempotency_mismatch,rate_limited,too_large,unavailable,internal"`
	Errors []fault.Field `json:"errors" doc:"what is wrong with the request, field by field"`

	extra      map[string]any
	retryAfter time.Duration
}

// MarshalJSON adds the further members some kinds have, such as "explain". They never replace a member named above.
func (p *Problem) MarshalJSON() ([]byte, error) {
	m := maps.Clone(p.extra)
	if m == nil {
		m = map[string]any{}
	}
	if p.Errors == nil {
		p.Errors = []fault.Field{}
	}
	m["title"], m["status"], m["detail"], m["code"], m["errors"] = p.Title, p.Status, p.Detail, p.Code, p.Errors
	return json.Marshal(m)
}

func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// GetStatus, GetHeaders and ContentType implement huma's interfaces of a response.
func (p *Problem) GetStatus() int { return p.Status }

func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	return h
}

// problemType is the media type of every problem.
const problemType = "application/problem+json"

func (p *Problem) ContentType(string) string { return problemType }

// defaultRetryAfter is the Retry-After, by status, of failures that pass by themselves.
var defaultRetryAfter = map[int]time.Duration{
	http.StatusTooManyRequests:    time.Minute,
	http.StatusServiceUnavailable: 5 * time.Second,
}

// problem returns what the caller may know of err. An error that is not a fault is logged in full, and the caller
// receives only "internal".
func (a *API) problem(ctx context.Context, err error) *Problem {
	f := fault.From(err)
	if f == nil || f.Kind == fault.Internal {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil { // the caller has left and reads nothing
			return newProblem(fault.Unavailable, "the request was cancelled")
		}
		a.Log.ErrorContext(ctx, "request failed", slog.String("request", requestID(ctx)), slog.Any("err", err))
		return newProblem(fault.Internal, "something went wrong on our side; it was noted as "+requestID(ctx))
	}
	if f.Kind == fault.Unavailable {
		a.Log.WarnContext(ctx, "request could not be served", slog.String("request", requestID(ctx)), slog.Any("err", err))
	}
	p := newProblem(f.Kind, f.Message)
	p.Errors, p.extra, p.retryAfter = f.Fields, f.Extra, f.RetryAfter
	if p.retryAfter == 0 {
		p.retryAfter = defaultRetryAfter[p.Status]
	}
	return p
}

func newProblem(k fault.Kind, detail string) *Problem {
	return &Problem{Title: k.Title(), Status: k.HTTPStatus(), Detail: detail, Code: k}
}

// writeProblem answers outside huma: middleware, unknown routes, streams.
func writeProblem(w http.ResponseWriter, p *Problem) {
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// ownErrors is a huma transformer: it turns huma's errors (a parameter that is not a number, a body that is not JSON)
// into ours, and omits the values that huma would echo, which may be passwords.
func ownErrors(ctx huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	if kind := notFoundBy(ctx.Operation(), e.Errors); kind != "" {
		p := newProblem(fault.NotFound, kind+" not found")
		if c, ok := ctx.(*contractContext); ok {
			c.status = p.Status
		}
		return p, nil
	}
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		ctx.SetHeader("Connection", "close") // or the rest of the body would be read as the next request
		return newProblem(fault.TooLarge, "the request's body is too large"), nil
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType, http.StatusRequestTimeout:
	default:
		return newProblem(fault.Internal, "something went wrong on our side"), nil
	}
	p := newProblem(fault.Invalid, "the request is not valid")
	if e.Status == http.StatusUnsupportedMediaType {
		p.Detail = "send JSON, with Content-Type: application/json"
	}
	if len(e.Errors) == 0 && e.Detail != "" {
		p.Detail = e.Detail
	}
	for _, d := range e.Errors {
		if d == nil {
			continue
		}
		where, what := strings.TrimPrefix(d.Location, "body."), d.Message
		if at, ok := strings.CutSuffix(what, " "+unstorable); ok && where == "body" {
			// readJSON names the place in its message
			where, what = at, unstorable
		}
		p.Errors = append(p.Errors, fault.Field{Location: where, Message: what})
	}
	if len(p.Errors) > 0 {
		p.Detail = strings.TrimPrefix(p.Errors[0].Location+": "+p.Errors[0].Message, ": ")
	}
	p.Status = statusOf(e.Status)
	return p, nil
}

// statusOf returns the contract's status for one of huma's: malformed input is 422, like all other invalid input.
func statusOf(humas int) int {
	if humas == http.StatusBadRequest {
		return http.StatusUnprocessableEntity
	}
	return humas
}

// contractContext makes huma use the contract's statuses.
type contractContext struct {
	humaContext
	status int // that ownErrors chose; 0: huma's
}

type humaContext = huma.Context

// SetStatus is called after the transformers.
func (c *contractContext) SetStatus(code int) {
	c.humaContext.SetStatus(cmp.Or(c.status, statusOf(code)))
}
func (c *contractContext) Unwrap() huma.Context { return c.humaContext }

// unstorable is the message for a text that isStorable rejects.
const unstorable = "must be UTF-8 without NUL characters"

// isStorable reports whether PostgreSQL can store a text, which must be UTF-8 without NUL.
func isStorable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// checkURL rejects a request whose path or query contains text that cannot be stored. readJSON checks bodies.
func checkURL(u *url.URL) error {
	if !isStorable(u.Path) {
		return fault.InvalidField("path", unstorable)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault.InvalidField("query", "is not valid: percent-encode each name and value, and separate them with &")
	}
	var bad fault.Fields
	for name, values := range query {
		if !isStorable(name) {
			return fault.InvalidField("query", unstorable)
		}
		for _, v := range values {
			if !isStorable(v) {
				bad.Add("query."+name, unstorable)
				break
			}
		}
	}
	return bad.Err()
}

// jsonFormat reads and writes JSON as huma does, but refuses bodies with text that cannot be stored.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readJSON}

func readJSON(raw []byte, into any) error {
	if err := checkJSON(raw); err != nil {
		return err
	}
	return huma.DefaultJSONFormat.Unmarshal(raw, into)
}

// checkJSON returns an error that names the first text in a JSON document that cannot be stored. It accepts what is not
// JSON: the decoder names that error.
func checkJSON(raw []byte) error {
	if utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u0000`)) {
		return nil
	}
	var v any
	if !utf8.Valid(raw) {
		return errors.New("the body " + unstorable)
	}
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	if at, found := findNUL("body", v); found {
		return errors.New(strings.TrimPrefix(at, "body.") + " " + unstorable)
	}
	return nil
}

// findNUL returns the location of a text with a NUL, in keys and values.
func findNUL(at string, v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return at, strings.IndexByte(v, 0) >= 0
	case []any:
		for i, e := range v {
			if where, found := findNUL(at+"["+strconv.Itoa(i)+"]", e); found {
				return where, true
			}
		}
	case map[string]any:
		for k, e := range v {
			if strings.IndexByte(k, 0) >= 0 {
				return at, true
			}
			if where, found := findNUL(at+"."+k, e); found {
				return where, true
			}
		}
	}
	return "", false
}
