package api_test

import (
	"encoding/json"
	"testing"
)

// The operator sees what the owner uses a GPU for.
func TestAHostSaysWhatUsesItsGPUs(t *testing.T) {
	t.Parallel()
	w := open(t)
	op := w.user("op")
	h := w.sell(op, 2, "2.00")
	if _, err := w.db.Pool.Exec(t.Context(), "UPDATE gpu SET in_use = 'Xorg, 412 MiB' WHERE host_id = $1 AND idx = 1",
		h); err != nil {
		t.Fatal(err)
	}
	var got struct {
		GPUs []struct {
			InUse string `json:"in_use"`
		} `json:"gpus"`
	}
	r := w.want(w.call(op, "GET", "/api/v1/hosts/"+h.String(), nil), 200, "")
	if err := json.Unmarshal([]byte(r.raw), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.GPUs) != 2 || got.GPUs[0].InUse != "" || got.GPUs[1].InUse != "Xorg, 412 MiB" {
		t.Errorf("%+v", got)
	}
}
