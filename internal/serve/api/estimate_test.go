package api_test

import "testing"

func TestEstimateNeedsNoToken(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.sell(w.user("op"), 8, "2.00")
	r := w.want(w.call("", "GET", "/api/v1/estimate?nodes=1&gpus_per_node=4&gpu=h100", nil), 200, "")
	if r.text("price_per_hour") != "8.000000" || len(r.list("nodes")) != 1 || r.text("currency") != "USD" {
		t.Error(r.raw)
	}
	w.want(w.call("", "GET", "/api/v1/estimate?nodes=9", nil), 409, "no_capacity")
	w.want(w.call("", "GET", "/api/v1/estimate?gpu=gpu_modle%3DH100", nil), 422, "validation_failed")
	w.want(w.call("", "GET", "/api/v1/estimate?nodes=0", nil), 422, "validation_failed")
}
