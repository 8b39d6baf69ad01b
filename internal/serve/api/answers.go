package api

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/fault"
)

// fails adds kinds of failure that an operation can answer beyond those that failuresOf derives. Tests hold
// every answer to them.
func fails(kinds ...fault.Kind) option {
	return func(op *huma.Operation) { op.Metadata[failsKey] = kinds }
}

const failsKey = "fails"

// failuresOf returns the kinds of failure that an operation can answer.
func failuresOf(op *huma.Operation, rule access) []fault.Kind {
	kinds := []fault.Kind{fault.Invalid, fault.RateLimited}
	if !rule.public {
		kinds = append(kinds, fault.Unauthorized, fault.Forbidden)
	}
	if strings.Contains(op.Path, "{") {
		kinds = append(kinds, fault.NotFound)
	}
	if op.Method != http.MethodGet && op.Method != http.MethodDelete {
		kinds = append(kinds, fault.TooLarge)
	}
	if op.Method == http.MethodPost {
		kinds = append(kinds, fault.IdemMismatch)
	}
	more, _ := op.Metadata[failsKey].([]fault.Kind)
	for _, k := range more {
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// addFailures adds the answers of all failures to an operation, by status. "default" stays for outages and for our own
// faults. Operations that fail alike share one answer of the document.
func addFailures(shared *huma.Components, op *huma.Operation, rule access) {
	byStatus := map[int][]fault.Kind{}
	for _, k := range failuresOf(op, rule) {
		byStatus[k.HTTPStatus()] = append(byStatus[k.HTTPStatus()], k)
	}
	for status, kinds := range byStatus {
		slices.Sort(kinds)
		op.Responses[strconv.Itoa(status)] = failureAnswer(shared, kinds...)
	}
	if slices.Contains(byStatus[http.StatusRequestEntityTooLarge], fault.TooLarge) {
		op.Responses[strconv.Itoa(http.StatusUnsupportedMediaType)] = noJSON(shared)
	}
	op.Responses["default"] = failureAnswer(shared, fault.Unavailable, fault.Internal)
}

// failureAnswer returns a reference to the answer of some kinds of failure.
func failureAnswer(shared *huma.Components, kinds ...fault.Kind) *huma.Response {
	names, lines := make([]string, len(kinds)), make([]string, len(kinds))
	for i, k := range kinds {
		names[i], lines[i] = string(k), fmt.Sprintf("`%s`: %s.", k, k.Title())
	}
	name := strings.Join(names, "_or_")
	shared.Responses[name] = &huma.Response{
		Description: strings.Join(lines, " "),
		Content: map[string]*huma.MediaType{problemType: {
			Schema:  shared.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem"),
			Example: problemExample(kinds[0]),
		}},
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

// noJSON is the answer to a body of another media type.
func noJSON(shared *huma.Components) *huma.Response {
	const name = "not_json"
	example := problemExample(fault.Invalid)
	example["status"], example["errors"] = http.StatusUnsupportedMediaType, []any{}
	example["detail"] = "send JSON, with Content-Type: application/json"
	shared.Responses[name] = &huma.Response{
		Description: fmt.Sprintf("`%s`: the body is not JSON.", fault.Invalid),
		Content: map[string]*huma.MediaType{problemType: {
			Schema: shared.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem"), Example: example,
		}},
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

// problemExample is a problem of a kind.
func problemExample(k fault.Kind) map[string]any {
	p := map[string]any{
		"title": k.Title(), "status": k.HTTPStatus(), "code": string(k), "detail": sentence(k.Title()), "errors": []any{},
	}
	if k == fault.Invalid {
		p["detail"] = "nodes: want 1 to 128"
		p["errors"] = []any{map[string]any{"location": "nodes", "message": "want 1 to 128"}}
	}
	return p
}
