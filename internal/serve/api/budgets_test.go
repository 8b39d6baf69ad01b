package api_test

import "testing"

func TestBudgetsOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, stranger := w.user("ada"), w.user("eve")
	w.sell(w.user("op"), 8, "2.00")
	w.fund(renter, "100.00")
	for _, body := range []string{`{}`, `{"cap":5}`, `{"cap":"-1"}`, `{"cap":"1.0000000001"}`,
		`{"cap":"99999999999999999999"}`, `{"cap":"5","project":" x"}`, `{"max_duration":1}`, `{"max_price_per_hour":"0"}`,
		`{"cap":"5","currency":"EUR"}`} {
		w.want(w.call(renter, "POST", "/api/v1/budgets", body), 422, "validation_failed")
	}
	w.want(w.call(w.token(renter, "read", "clusters"), "POST", "/api/v1/budgets", `{"cap":"5"}`), 403, "forbidden")
	b := w.want(w.call(renter, "POST", "/api/v1/budgets", `{"project":"vision","cap":"0.50","max_price_per_hour":"3.00"}`),
		200, "")
	if b.text("cap") != "0.500000000" || b.text("left") != "0.500000000" || b.text("committed") != "0.000000000" {
		t.Errorf("%s", b.raw)
	}
	path := "/api/v1/budgets/" + b.text("id")
	w.want(w.call(stranger, "GET", path, nil), 404, "not_found")
	w.want(w.call(stranger, "DELETE", path, nil), 404, "not_found")

	rent := func(spec string, status int, kind string) {
		w.want(w.call(renter, "POST", "/api/v1/clusters", spec), status, kind)
	}
	rent(`{"project":"vision","image":"x/y:1","gpus_per_node":2}`, 403, "quota_exceeded") // too dear
	rent(`{"project":"vision","image":"x/y:1","disk_gb":1}`, 202, "")
	rent(`{"project":"other","image":"x/y:1","gpus_per_node":2}`, 202, "") // does not count
	if r := w.want(w.call(renter, "GET", path, nil), 200, ""); r.text("committed") <= "0.100000000" ||
		r.text("committed") > "0.500000000" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(renter, "POST", "/api/v1/budgets", `{"project":"vision","cap":"0.01"}`), 200, "")
	rent(`{"project":"vision","image":"x/y:1","disk_gb":1}`, 403, "quota_exceeded")
	if r := w.want(w.call(renter, "GET", "/api/v1/budgets", nil), 200, ""); len(r.list("items")) != 1 {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(renter, "DELETE", path, nil), 204, "")
	w.want(w.call(renter, "GET", path, nil), 404, "not_found")
	rent(`{"project":"vision","image":"x/y:1","disk_gb":1}`, 202, "")
}
