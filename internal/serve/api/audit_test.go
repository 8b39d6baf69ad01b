package api_test

import "testing"

// Everybody of an organisation reads what it did, and nothing of another's; a token needs the scope that sees
// everything.
func TestTheTrailOfAnOrganisation(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, eve := w.user("ada"), w.user("eve")
	cl := w.rented(ada)
	const path = "/api/v1/audit-events"
	found := func(by, query string, want int) (r reply) {
		t.Helper()
		if r = w.want(w.call(by, "GET", path+query, nil), 200, ""); len(r.list("items")) != want {
			t.Errorf("%s: %s", query, r.raw)
		}
		return r
	}
	e := found(ada, "?q="+cl, 1).list("items")[0].(map[string]any)
	if e["action"] != "cluster.rent" || e["email"] != "ada@example.com" || e["object"] != cl || e["address"] == nil ||
		e["at"] == nil {
		t.Errorf("%+v", e)
	}
	found(ada, "?action=cluster", 1)
	found(eve, "?q="+cl, 0)
	found(eve, "?action=cluster", 0)
	all := len(w.want(w.call(ada, "GET", path, nil), 200, "").list("items"))
	first := found(ada, "?limit=1", 1)
	rest := found(ada, "?limit=100&after="+first.text("next"), all-1)
	if rest.json["next"] != nil {
		t.Error(rest.raw)
	}
	w.want(w.call(w.token(ada, "clusters"), "GET", path, nil), 403, "forbidden")
	found(w.token(ada, "read"), "?q="+cl, 1)
	w.want(w.call(ada, "GET", path+"?after=x", nil), 422, "validation_failed")
	w.want(w.call("", "GET", path, nil), 401, "unauthorized")
}
