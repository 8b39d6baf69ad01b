package api

import (
	"context"
	"io"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
)

// OpenStreamsWith puts a test's hosts in the place of real ones.
func (a *API) OpenStreamsWith(f func(context.Context, id.Host, agentapi.Dial) (io.ReadCloser, error)) {
	*a.logs = *nodelog.New(a.Clusters.Views, f, a.Bus)
}

// Routes are all routes, "GET /api/v1/me", in the order of the reference.
func Routes(a *API) []string { return a.table.order }

// Needs are the scopes of which a route requires one, and whether only admins of the platform may call it; ok is false
// for a route that is open to everybody.
func Needs(a *API, route string) (scopes []string, staff, ok bool) {
	r := a.table.rule[route]
	return r.scopes, r.staff, !r.public
}
