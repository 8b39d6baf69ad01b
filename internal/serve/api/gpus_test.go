package api_test

import (
	"testing"

	"github.com/musterhq/muster/internal/serve/api"
)

// An operator sees the contested GPUs of their own hosts; only admins see all, and decide.
func TestContestedGPUs(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, eve := w.user("ada"), w.user("eve")
	h := w.sell(ada, 1, "2.00").String()
	w.sell(eve, 1, "2.00")
	if _, err := w.db.Pool.Exec(t.Context(), "UPDATE gpu SET contest = 'holder'"); err != nil {
		t.Fatal(err)
	}
	items := w.want(w.call(ada, "GET", api.Base+"/gpus/contested", nil), 200, "").list("items")
	if len(items) != 1 || items[0].(map[string]any)["host_id"] != h || items[0].(map[string]any)["offered"] != false {
		t.Errorf("%v", items)
	}
	w.want(w.call(ada, "GET", api.Base+"/admin/gpus/contested", nil), 403, "forbidden")
	w.want(w.call(ada, "POST", api.Base+"/admin/gpus/GPU-1/award", map[string]any{"host_id": h, "reason": "mine"}), 403,
		"forbidden")
}
