package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

var metricName = regexp.MustCompile(`\bmuster_[a-z_]+\b`)

// TestMetrics_DashboardAndPage compares the metrics that a replica exports with the page that explains them and the
// dashboard that draws them.
func TestMetrics_DashboardAndPage(t *testing.T) {
	t.Parallel()
	names := exported(t)
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	dashboard, err := os.ReadFile("../../deploy/grafana/muster.json")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, n := range metricName.FindAllString(string(dashboard), -1) {
		n = strings.TrimSuffix(n, "_bucket")
		drawn[n] = true
		if !slices.Contains(names, n) {
			t.Errorf("the dashboard draws %s, which no replica exports", n)
		}
	}
	for _, n := range names {
		if !strings.Contains(string(page), "`"+n+"`") {
			t.Errorf("docs/operations.md does not explain %s", n)
		}
		if !drawn[n] {
			t.Errorf("the dashboard does not draw %s", n)
		}
	}
}

// exported returns the names of all metrics of a replica, after each was used once.
func exported(t *testing.T) []string {
	t.Helper()
	d := dbtest.New(t)
	metrics.Job("test", time.Now(), 1, nil)
	metrics.Job("test", time.Now(), 0, errors.New("no"))
	metrics.HostSync(time.Now(), []string{"usage"})
	metrics.HostMessage("sync", "handled")
	metrics.HostMessageWaited("sync", time.Millisecond)
	metrics.Ingest(time.Now(), 1, 1, 1)
	metrics.Claim("lease", true)
	serveOnce(t, "/things/{id}", "/things/7")
	for _, sql := range []string{
		`INSERT INTO stripe_outbox (id, kind, ref, params, idem_key, state) VALUES (gen_random_uuid(), 'x', 'x', '{}', 'x',
			'pending')`,
		`INSERT INTO dead_letter (queue, ref, error, failing_since) VALUES ('q', 'r', 'e', clock_timestamp() - interval
			'1 hour')`,
		`WITH o AS (INSERT INTO org (id, name, personal) VALUES (gen_random_uuid(), 'o', true) RETURNING id),
			d AS (INSERT INTO data_domain (id, org_id, key_sealed) SELECT gen_random_uuid(), id, 'x' FROM o
				RETURNING id, org_id),
			v AS (INSERT INTO volume (id, org_id, domain_id, name, size_limit, keep_last, created_by)
				SELECT gen_random_uuid(), org_id, id, 'v', 1, 1, gen_random_uuid() FROM d RETURNING id, domain_id),
			x AS (INSERT INTO data_session (id, volume_id, domain_id, mode, base_seq, base_packs, expires_at)
				SELECT gen_random_uuid(), id, domain_id, 'rw', 0, '', now() FROM v RETURNING id, domain_id)
			INSERT INTO data_pack (domain_id, n, session_id, state, sha256, bytes, url_until, read_at, lost_at, damaged,
				silent_at, retry_at)
			SELECT domain_id, n, id, 'live', sha256('x'), 1, now(), now() - interval '1 hour' * n,
				CASE WHEN n > 3 THEN now() END, n > 5, CASE WHEN n = 3 THEN now() END, CASE WHEN n > 2 THEN now() END
			FROM x, generate_series(1, 8) n`,
		`UPDATE data_check SET list_ended = to_timestamp(1000)`,
	} {
		if _, err := d.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(poolStats(d.Pool), platformState(d.Pool, slog.New(slog.DiscardHandler)))
	families, err := prometheus.Gatherers{reg, metrics.Gatherer()}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"muster_clusters", "muster_gpus_claimed"} // nothing is rented here: they have no values
	for _, f := range families {
		names = append(names, f.GetName())
		switch f.GetName() {
		case "muster_queue_length":
			if n := value(f, "stripe_outbox"); n != 1 {
				t.Errorf("%v rows wait in stripe_outbox, want 1", n)
			}
		case "muster_store_packs":
			if lost, damaged, silent := value(f, "lost"), value(f, "damaged"), value(f, "silent"); lost != 2 || damaged != 3 ||
				silent != 1 {
				t.Errorf("%v packs are lost, %v damaged, %v silent", lost, damaged, silent)
			}
		case "muster_store_unread_seconds":
			if s := f.GetMetric()[0].GetGauge().GetValue(); s < 7199 || s > 7800 {
				t.Errorf("the pack that was read first was read %v s ago, want two hours", s)
			}
		case "muster_store_list_timestamp_seconds":
			if s := f.GetMetric()[0].GetGauge().GetValue(); s != 1000 {
				t.Errorf("the list ended at %v", s)
			}
		case "muster_queue_overdue_seconds":
			if s := value(f, "dead_letters"); s < 3599 {
				t.Errorf("the oldest dead letter is overdue for %v s, want an hour", s)
			}
		}
	}
	if problems, err := testutil.GatherAndLint(metrics.Gatherer()); err != nil || len(problems) > 0 {
		t.Errorf("names: %v %v", problems, err)
	}
	return names
}

func value(f *dto.MetricFamily, label string) float64 {
	for _, m := range f.GetMetric() {
		if m.GetLabel()[0].GetValue() == label {
			return m.GetGauge().GetValue()
		}
	}
	return -1
}

// serveOnce makes one request to a router with the middleware.
func serveOnce(t *testing.T, pattern, path string) *http.Response {
	t.Helper()
	r := chi.NewRouter()
	r.Use(metrics.HTTP("test", slog.New(slog.DiscardHandler)))
	r.Get(pattern, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Result()
}

// TestMetrics_RoutesNotPaths: a label is a route's pattern, whatever paths are asked for.
func TestMetrics_RoutesNotPaths(t *testing.T) {
	t.Parallel()
	serveOnce(t, "/secrets/{id}", "/secrets/4711")
	serveOnce(t, "/secrets/{id}", "/nowhere/4711")
	families, err := metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "route" {
					routes[l.GetValue()] = true
				}
			}
		}
	}
	if !routes["/secrets/{id}"] || !routes["none"] {
		t.Errorf("routes %v, want /secrets/{id} and none", routes)
	}
	for r := range routes {
		if strings.Contains(r, "4711") {
			t.Errorf("a path is a label: %s", r)
		}
	}
}

// TestRequests_ChangesAreLogged: a request that changed something is one line at level info, with who sent it and the
// route, never the path or the query. Reads, refusals and unknown routes are none.
func TestRequests_ChangesAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := chi.NewRouter()
	r.Use(metrics.HTTP("test", slog.New(slog.NewTextHandler(&out, nil))))
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			metrics.From(r.Context(), account.Principal{Org: id.New[id.Org]()}.LogAttrs()...)
			w.Header().Set("Request-Id", "req_1")
			w.WriteHeader(status)
		}
	}
	r.Get("/things/{id}", answer(200))
	r.Post("/things/{id}", answer(201))
	r.Delete("/things/{id}", answer(404))
	for _, c := range []struct {
		method, path string
		logged       bool
	}{{"GET", "/things/4711", false}, {"POST", "/things/4711?key=4711", true}, {"DELETE", "/things/4711", false},
		{"POST", "/nowhere", false}} {
		out.Reset()
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, c.path, nil))
		line := out.String()
		if (line != "") != c.logged || strings.Contains(line, "4711") {
			t.Errorf("%s %s: %q", c.method, c.path, line)
		}
		for _, want := range []string{"level=INFO", "org=org_", "route=/things/{id}", "status=201", "request=req_1"} {
			if c.logged && !strings.Contains(line, want) {
				t.Errorf("%s %s: no %s in %q", c.method, c.path, want, line)
			}
		}
	}
}
