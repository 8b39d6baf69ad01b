package page

import "github.com/go-chi/chi/v5"

// Mux mounts pages, each with the rule of who may open it.
type Mux struct {
	site *Site
	r    chi.Router
}

// NewMux returns a mux that mounts pages of the site on r.
func NewMux(site *Site, r chi.Router) Mux { return Mux{site, r} }

// Get mounts a page.
func (m Mux) Get(path string, rule Access, h Handler) { m.r.Get(path, m.site.Handle(rule, h)) }

// Post mounts the action of a form.
func (m Mux) Post(path string, rule Access, h Handler) { m.r.Post(path, m.site.Handle(rule, h)) }
