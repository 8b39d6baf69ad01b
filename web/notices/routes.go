// Package notices holds the pages of the platform's messages to an organisation: the notices, and the webhooks that
// receive them.
package notices

import "github.com/musterhq/muster/web/page"

// Pages are the pages of notices and webhooks. Make them with New.
type Pages struct {
	*page.Site
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{Site: site}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	m.Get("/notices", page.SignedIn, s.list)
	m.Post("/notices/read", page.SignedIn, s.markAllRead)
	m.Post("/notices/{id}/read", page.SignedIn, s.markRead)
	m.Get("/notices/webhooks", page.ReadMembers, s.webhooks)
	m.Post("/notices/webhooks", page.WriteMembers, s.createWebhook)
	m.Get("/notices/webhooks/{id}", page.ReadMembers, s.webhook)
	m.Post("/notices/webhooks/{id}/enable", page.WriteMembers, s.enableWebhook)
	m.Post("/notices/webhooks/{id}/delete", page.WriteMembers, s.deleteWebhook)
	m.Post("/notices/webhooks/{id}/deliveries/{notice}/retry", page.WriteMembers, s.retryDelivery)
}
