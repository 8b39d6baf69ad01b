package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// A renter's Prometheus scrapes with a token that may only read; no one else's token, and none that is not one, does.
func TestScrapeOverHTTP(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, stranger := w.user("ada"), w.user("eve")
	cl := w.rented(renter)
	path := "/api/v1/clusters/" + cl + "/metrics/prometheus"

	var gpu id.GPU
	if err := w.db.Pool.QueryRow(t.Context(), "SELECT gpu_id FROM gpu_claim WHERE kind = 'lease' AND ended_at IS NULL "+
		"ORDER BY gpu_id LIMIT 1").Scan(&gpu); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	err := host.NewAgents(w.db, nil).AppendTelemetry(t.Context(), []host.Series{{
		GPU:     gpu,
		Samples: []host.Sample{{At: now, Util: 93, MemMB: 2048, PowerW: 412, TempC: -1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Pool.Exec(t.Context(),
		"UPDATE lease SET created_at = created_at - interval '1 minute'"); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{renter, w.token(renter, "read")} {
		r := w.want(w.call(token, "GET", path, nil), 200, "")
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("of type %q", r.Header.Get("Content-Type"))
		}
		for _, line := range []string{
			"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n", `muster_cluster_running{cluster="` + cl + `"`,
			`muster_cluster_price_per_hour{cluster="` + cl + `",currency="USD"`,
			`muster_cluster_nodes{cluster="` + cl + `"`, "# TYPE muster_cluster_energy_joules_total counter\n",
		} {
			if !strings.Contains(r.raw, line) {
				t.Errorf("no %q in\n%s", line, r.raw)
			}
		}
		if strings.Count(r.raw, `modelName="`) != 3 || !strings.Contains(r.raw, "} 93\n") ||
			!strings.Contains(r.raw, "} 2048\n") || !strings.Contains(r.raw, "} 412\n") {
			t.Errorf("readings:\n%s", r.raw)
		}
	}
	w.want(w.call("", "GET", path, nil), 401, "unauthorized")
	w.want(w.call("mst_nonsense", "GET", path, nil), 401, "unauthorized")
	w.want(w.call(stranger, "GET", path, nil), 404, "not_found")
	w.want(w.call(w.token(renter, "billing"), "GET", path, nil), 403, "forbidden")
	w.want(w.call(renter, "GET", "/api/v1/clusters/nonsense/metrics/prometheus", nil), 404, "not_found")
}
