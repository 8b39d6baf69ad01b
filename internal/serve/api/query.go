package api

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/text"
)

// knownQuery rejects a request with a query parameter that its operation does not have: a misspelt filter would
// otherwise filter nothing.
func (a *API) knownQuery(ctx huma.Context, next func(huma.Context)) {
	if err := checkQuery(ctx); err != nil {
		r, w := humachi.Unwrap(ctx)
		writeProblem(w, a.problem(r.Context(), err))
		return
	}
	next(ctx)
}

func checkQuery(ctx huma.Context) error {
	at := ctx.URL()
	if at.RawQuery == "" {
		return nil
	}
	var known []string
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	var sent []string
	for name := range at.Query() {
		if !slices.Contains(known, name) {
			sent = append(sent, name)
		}
	}
	slices.Sort(sent)
	var bad fault.Fields
	for _, name := range sent {
		message := "unknown parameter"
		if like := text.Nearest(name, known); like != "" {
			message += "; did you mean " + like + "?"
		}
		bad.Add("query."+text.Ellipsis(name, 40), "%s", message)
	}
	return bad.Err()
}
