package api_test

import "testing"

func TestPriceHistoryOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	op := w.user("op")
	h := "/api/v1/hosts/" + w.sell(op, 2, "2.00").String()
	w.want(w.call(op, "PATCH", h, map[string]any{"price_per_gpu_hour": "3.25"}), 200, "")
	w.want(w.call(op, "PATCH", h, map[string]any{"price_per_gpu_hour": "3.25"}), 200, "") // no change
	r := w.want(w.call(op, "GET", h+"/prices", nil), 200, "")
	items := r.list("items")
	if len(items) != 2 {
		t.Fatalf("%s", r.raw)
	}
	if newest := items[0].(map[string]any); newest["price_per_gpu_hour"] != "3.250000" || newest["before"] != "2.000000" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(w.user("eve"), "GET", h+"/prices", nil), 404, "not_found")
}
