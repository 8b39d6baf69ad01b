// Package web is the dashboard: pages rendered on the server, readable without JavaScript, live through server-sent
// events. Each package below it holds the pages of one part of the product, on the frame of package page and with the
// components of package view. Handlers translate between forms and the domain's use cases; they hold no rules.
package web

import (
	"github.com/musterhq/muster/web/accounts"
	"github.com/musterhq/muster/web/admin"
	"github.com/musterhq/muster/web/billing"
	"github.com/musterhq/muster/web/clusters"
	"github.com/musterhq/muster/web/docs"
	"github.com/musterhq/muster/web/front"
	"github.com/musterhq/muster/web/hosts"
	"github.com/musterhq/muster/web/notices"
	"github.com/musterhq/muster/web/offers"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/volumes"
)

// Config has the services and settings of the dashboard.
type Config = page.Config

// Web serves the pages. Make one with New; mount them with Routes.
type Web struct {
	site     *page.Site
	front    *front.Pages
	accounts *accounts.Pages
	notices  *notices.Pages
	offers   *offers.Pages
	clusters *clusters.Pages
	billing  *billing.Pages
	hosts    *hosts.Pages
	admin    *admin.Pages
	docs     *docs.Pages
	volumes  *volumes.Pages
}

// New returns the dashboard; it starts nothing.
func New(cfg Config) *Web {
	site := page.New(cfg)
	return &Web{
		site:     site,
		front:    front.New(site),
		accounts: accounts.New(site),
		notices:  notices.New(site),
		offers:   offers.New(site),
		clusters: clusters.New(site),
		billing:  billing.New(site),
		hosts:    hosts.New(site),
		admin:    admin.New(site),
		docs:     docs.New(site),
		volumes:  volumes.New(site),
	}
}
