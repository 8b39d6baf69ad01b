package api_test

import "testing"

func TestPostpaid(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, boss := w.user("ada"), w.boss("ann")
	org := w.want(w.call(renter, "GET", "/api/v1/me", nil), 200, "").text("org.id")
	path := "/api/v1/admin/postpaid/" + org
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid", nil), 200, ""); r.text("state") != "off" || r.text("credit_limit") != "0.000000000" {
		t.Error(r.raw)
	}
	on := `{"on":true,"credit_limit":"500.00","reason":"contract 2026-17"}`
	w.want(w.call(renter, "PATCH", path, on), 403, "forbidden")
	w.want(w.call(renter, "GET", "/api/v1/admin/postpaid", nil), 403, "forbidden")
	w.want(w.call(boss, "PATCH", "/api/v1/admin/postpaid/"+"org_0", on), 404, "not_found")
	w.want(w.call(boss, "PATCH", path, `{"on":true,"reason":"x"}`), 422, "validation_failed")
	w.want(w.call(boss, "PATCH", path, `{"on":true,"credit_limit":"500.00"}`), 422, "validation_failed")

	if r := w.want(w.call(boss, "PATCH", path, on), 200, ""); r.text("state") != "on" || r.text("left") != "500.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid", nil), 200, ""); r.text("credit_limit") != "500.000000000" || r.text("reason") != "contract 2026-17" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/balance", nil), 200, ""); r.text("available") != "500.000000000" || r.text("credit") != "500.000000000" || r.text("owed") != "0.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(boss, "GET", "/api/v1/admin/postpaid", nil), 200, ""); len(r.json["items"].([]any)) != 1 {
		t.Error(r.raw)
	}

	// It rents without having paid anything.
	w.sell(boss, 2, "2.00")
	w.want(w.call(renter, "POST", "/api/v1/clusters", `{"image":"x/y:1","nodes":1,"gpus_per_node":1}`), 202, "")
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/balance", nil), 200, ""); r.text("available") != "498.000000000" || r.text("held") != "2.000000000" {
		t.Error(r.raw)
	}
	if r := w.want(w.call(renter, "GET", "/api/v1/billing/postpaid", nil), 200, ""); r.text("used") != "2.000000000" || r.text("left") != "498.000000000" {
		t.Error(r.raw)
	}
	w.want(w.call(renter, "POST", "/api/v1/billing/refunds", `{"amount":"1.00"}`), 402, "insufficient_funds") // credit is not its money
	if r := w.want(w.call(boss, "PATCH", path, `{"on":false,"reason":"contract ended"}`), 200, ""); r.text("state") != "ending" || r.text("left") != "0.000000000" {
		t.Error(r.raw)
	}
	w.want(w.call(renter, "POST", "/api/v1/clusters", `{"image":"x/y:1","nodes":1,"gpus_per_node":1}`), 402, "insufficient_funds")
}
