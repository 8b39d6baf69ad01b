package api_test

import "testing"

func TestTheTimeZoneOfAnOrg(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada := w.user("ada")
	if r := w.want(w.call(ada, "GET", "/api/v1/org/zone", nil), 200, ""); r.json["zone"] != "UTC" {
		t.Error(r.raw)
	}
	for _, bad := range []string{`{"zone":"Mars/Phobos"}`, `{"zone":""}`, `{"zone":"Local"}`} {
		w.want(w.call(ada, "PUT", "/api/v1/org/zone", bad), 422, "validation_failed")
	}
	w.want(w.call(w.token(ada, "read"), "PUT", "/api/v1/org/zone", `{"zone":"Europe/Berlin"}`), 403, "forbidden")
	w.want(w.call(ada, "PUT", "/api/v1/org/zone", `{"zone":"Europe/Berlin"}`), 200, "")
	me := w.want(w.call(ada, "GET", "/api/v1/me", nil), 200, "")
	if org, _ := me.json["org"].(map[string]any); org["zone"] != "Europe/Berlin" {
		t.Error(me.raw)
	}
	if r := w.want(w.call(ada, "GET", "/api/v1/billing/statement", nil), 200, ""); r.json["zone"] != "Europe/Berlin" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(w.user("eve"), "GET", "/api/v1/org/zone", nil), 200, ""); r.json["zone"] != "UTC" {
		t.Error(r.raw)
	}
}
