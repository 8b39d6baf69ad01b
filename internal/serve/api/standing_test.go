package api_test

import (
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// The standing of an org is shown to it; only platform operators list those with disputes and forgive lost ones.
func TestStanding(t *testing.T) {
	t.Parallel()
	w := open(t)
	who, boss := w.user("ada"), w.boss("ann")
	if r := w.want(w.call(who, "GET", "/api/v1/billing/standing", nil), 200, ""); r.text("state") != "ok" {
		t.Error(r.raw)
	}
	w.want(w.call(who, "GET", "/api/v1/admin/standings", nil), 403, "forbidden")
	if r := w.want(w.call(boss, "GET", "/api/v1/admin/standings", nil), 200, ""); len(r.list("items")) != 0 {
		t.Error(r.raw)
	}
	at := "/api/v1/admin/orgs/" + id.New[id.Org]().String() + "/forgive-disputes"
	w.want(w.call(who, "POST", at, `{"reason":"mine"}`), 403, "forbidden")
	w.want(w.call(boss, "POST", at, `{"reason":""}`), 422, "validation_failed")
}
