package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

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

// GetStatus, GetHeaders and ContentType make it an answer of huma's.
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

func (p *Problem) ContentType(string) string { return "application/problem+json" }

// defaultRetryAfter is the Retry-After, by status, of failures that pass by themselves.
var defaultRetryAfter = map[int]time.Duration{
	http.StatusTooManyRequests:    time.Minute,
	http.StatusServiceUnavailable: 5 * time.Second,
}

// problem is what the caller may know of err. Anything that is not a fault is logged whole and told as nothing but
// "internal".
func (a *API) problem(ctx context.Context, err error) *Problem {
	f := fault.From(err)
	if f == nil || f.Kind == fault.Internal {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil { // the caller left: nobody reads this
			return newProblem(fault.Unavailable, "the request was cancelled")
		}
		a.log.ErrorContext(ctx, "request failed", slog.String("request", requestID(ctx)), slog.Any("error", err))
		return newProblem(fault.Internal, "something went wrong on our side; it was noted as "+requestID(ctx))
	}
	if f.Kind == fault.Unavailable {
		a.log.WarnContext(ctx, "request could not be served", slog.String("request", requestID(ctx)), slog.Any("error", err))
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

// ownErrors is a huma transformer: it turns the errors huma makes itself (a parameter that is no number, a body that
// is no JSON) into ours, and leaves out the values huma would echo, which may be passwords.
func ownErrors(ctx huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
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

// statusOf is the contract's status for one of huma's: what is malformed is 422 like everything that is not valid.
func statusOf(humas int) int {
	if humas == http.StatusBadRequest {
		return http.StatusUnprocessableEntity
	}
	return humas
}

// contractContext makes huma answer with the contract's statuses.
type contractContext struct{ humaContext }

type humaContext = huma.Context

func (c contractContext) SetStatus(code int)   { c.humaContext.SetStatus(statusOf(code)) }
func (c contractContext) Unwrap() huma.Context { return c.humaContext }
