package api_test

import (
	"testing"
	"time"
)

func TestAHostIsTakenBackOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	op := w.user("op")
	h := "/api/v1/hosts/" + w.sell(op, 2, "2.00").String()
	if r := w.want(w.call(op, "GET", h+"/reclaim", nil), 200, ""); r.text("credit") != "0.000000000" &&
		r.text("credit") != "0.000000" || r.text("currency") == "" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(w.user("eve"), "GET", h+"/reclaim", nil), 404, "not_found")
	w.want(w.call(op, "POST", h+"/actions", map[string]any{"action": "drain", "notice": 60}), 422, "validation_failed")
	w.want(w.call(op, "POST", h+"/actions", map[string]any{"action": "reclaim", "notice": -1}), 422, "validation_failed")
	r := w.want(w.call(op, "POST", h+"/actions", map[string]any{"action": "reclaim", "notice": 7200}), 200, "")
	if at, err := time.Parse(time.RFC3339, r.text("reclaim_at")); err != nil || r.text("state") != "draining" ||
		at.IsZero() {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(op, "POST", h+"/actions", map[string]any{"action": "resume"}), 200, "")
}
