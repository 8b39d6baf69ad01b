package api_test

import (
	"net/url"
	"testing"
)

func TestPriceGuideOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	op, other := w.user("op"), w.user("other")
	w.sell(op, 2, "2.00")
	w.sell(other, 4, "3.50")
	path := "/api/v1/price-guide?gpu_model=" + url.QueryEscape("NVIDIA H100 80GB HBM3")
	r := w.want(w.call(op, "GET", path, nil), 200, "")
	if r.text("median") != "3.500000" || len(r.list("prices")) != 1 {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(op, "GET", "/api/v1/price-guide", nil), 422, "validation_failed")
}
