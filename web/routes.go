package web

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/web/page"
)

// Routes mounts every page. Each package of pages lists its own.
func (s *Web) Routes(r chi.Router) {
	// Refuse forms posted from another site, by the origin that the browser sends.
	guard := http.NewCrossOriginProtection()
	r.Group(func(r chi.Router) {
		r.Use(metrics.HTTP("web", s.site.Log), s.site.LimitRequests, guard.Handler, page.LimitForms)
		m := page.NewMux(s.site, r)
		s.front.Routes(m)
		s.accounts.Routes(m)
		s.notices.Routes(m)
		s.offers.Routes(m)
		s.clusters.Routes(m)
		s.billing.Routes(m)
		s.hosts.Routes(m)
		s.admin.Routes(m)
		s.docs.Routes(m)
		s.volumes.Routes(m)
	})
	s.site.Static(r)
	r.NotFound(s.site.Handle(page.Anybody, func(*page.Visit) error {
		return fault.New(fault.NotFound, "page not found")
	}))
}
