package api

import "net/http"

func (a *API) docs(w http.ResponseWriter, _ *http.Request) {}
func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, 200, a.table.huma.OpenAPI())
}
