package api

import (
	"net/http"
	"sync"
)

// rendered holds the document, which does not change while the server runs. It is rendered at its first request.
type rendered struct {
	openAPI func() ([]byte, error)
}

func (a *API) render() rendered {
	return rendered{openAPI: sync.OnceValues(func() ([]byte, error) { return a.table.huma.OpenAPI().MarshalJSON() })}
}

// OpenAPI returns the OpenAPI document. The pages of the reference are made from it.
func (a *API) OpenAPI() ([]byte, error) { return a.rendered.openAPI() }

// docsPath is where the reference is, for people.
const docsPath = "/docs/api"

// docs sends people from the reference's former address to the present one.
func (a *API) docs(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, docsPath, http.StatusPermanentRedirect)
}
