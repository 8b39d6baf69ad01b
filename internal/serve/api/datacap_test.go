package api_test

import (
	"strings"
	"testing"
)

// A cap is set, read and taken off over REST; a host that has used it up says why it is not offered.
func TestADataCapOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	op := w.user("op")
	hid := w.sell(op, 2, "2.00")
	h := "/api/v1/hosts/" + hid.String()
	if r := w.want(w.call(op, "PATCH", h, map[string]any{"up_cap_gb": -1}), 422,
		"validation_failed"); !strings.Contains(r.raw, "up_cap_gb") {
		t.Error(r.raw)
	}
	w.want(w.call(w.user("eve"), "PATCH", h, map[string]any{"up_cap_gb": 1}), 404, "not_found")
	if _, err := w.db.Pool.Exec(t.Context(), `INSERT INTO host_month_traffic (host_id, month, up_bytes, down_bytes)
		VALUES ($1, date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC')::date, 2500000000,
		7000000000)`, hid); err != nil {
		t.Fatal(err)
	}
	r := w.want(w.call(op, "PATCH", h, map[string]any{"up_cap_gb": 10}), 200, "")
	if !strings.Contains(r.raw, `"used_percent":25`) || !strings.Contains(r.raw, `"down_cap_gb":null`) ||
		!strings.Contains(r.raw, `"selling":true`) {
		t.Error(r.raw)
	}
	r = w.want(w.call(op, "PATCH", h, map[string]any{"down_cap_gb": 7}), 200, "") // what is sent keeps its cap
	if !strings.Contains(r.raw, `"up_cap_gb":10`) || !strings.Contains(r.raw, `"selling":false`) ||
		!strings.Contains(r.raw, "is used up; it is offered again on 1 ") {
		t.Error(r.raw)
	}
	if _, err := w.db.Pool.Exec(t.Context(), "INSERT INTO host_pulls (host_id, counter, bytes) VALUES ($1, 'a', "+
		"1500000000)", hid); err != nil {
		t.Fatal(err)
	}
	r = w.want(w.call(op, "PATCH", h, map[string]any{"down_cap_gb": 0}), 200, "")
	if !strings.Contains(r.raw, `"pulled_bytes":1500000000`) || !strings.Contains(r.raw, `"overlay_up_bytes":0`) ||
		!strings.Contains(r.raw, `"overlay_down_bytes":0`) {
		t.Error(r.raw)
	}
	if !strings.Contains(r.raw, `"down_cap_gb":null`) || !strings.Contains(r.raw, `"selling":true`) {
		t.Error(r.raw)
	}
}
