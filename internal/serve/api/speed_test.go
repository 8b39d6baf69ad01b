package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// A host's operator, and no one else, reads what its GPUs did and what slowed them down.
func TestMetricsOfAHost(t *testing.T) {
	t.Parallel()
	w := open(t)
	operator, stranger := w.user("op"), w.user("eve")
	w.sell(operator, 2, "2.00")
	var gpu id.GPU
	var h id.Host
	if err := w.db.Pool.QueryRow(t.Context(), "SELECT id, host_id FROM gpu ORDER BY uuid LIMIT 1").Scan(&gpu,
		&h); err != nil {
		t.Fatal(err)
	}
	speed := host.Speed{SMMHz: 990, MemMHz: -1, Limits: host.LimitBrake, Fan: 45, PCIeReplays: 2, NVLinkErrors: -1,
		EnergyJ: 7}
	if err := host.NewAgents(w.db, nil).AppendTelemetry(t.Context(), []host.Series{{GPU: gpu, Samples: []host.Sample{
		{At: time.Now().Add(-time.Second), Util: 93, MemMB: 2048, PowerW: 412, TempC: -1, Speed: &speed}}}}); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/hosts/" + h.String() + "/metrics"
	r := w.want(w.call(operator, "GET", path, nil), 200, "")
	const want = `"speed":{"sm_mhz":990,"mem_mhz":null,"limits":["power_brake"],"fan_percent":45,"pcie_replays":2,` +
		`"nvlink_errors":null,"energy_j":7}`
	if len(r.list("gpus")) != 2 || !strings.Contains(r.raw, want) {
		t.Errorf("no %s in\n%s", want, r.raw)
	}
	w.want(w.call(stranger, "GET", path, nil), 404, "not_found")
	w.want(w.call("", "GET", path, nil), 401, "unauthorized")
}
