package api_test

import (
	"strings"
	"testing"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.want(w.call("", "GET", "/api/v1/openapi.json", nil), 200, "")
	if r.text("openapi") != "3.1.0" {
		t.Errorf("version %q", r.text("openapi"))
	}
	paths, _ := r.json["paths"].(map[string]any)
	for _, want := range strings.Fields(`/signup /me /tokens /tokens/{id} /ssh-keys /ssh-keys/{id} /offers /quotes /quotes/{id} /clusters /clusters/{id}
		/clusters/{id}/actions /clusters/{id}/events /clusters/{id}/logs /clusters/{id}/metrics /clusters/{id}/usage
		/host-enrollments /hosts /hosts/{id} /hosts/{id}/actions /hosts/{id}/earnings /hosts/{id}/metrics
		/billing/balance /billing/topups /billing/transactions`) {
		if paths["/api/v1"+want] == nil {
			t.Errorf("%s is not in the document", want)
		}
	}
	for _, never := range []string{"ErrorModel", "octet-stream", "$schema"} {
		if strings.Contains(r.raw, never) {
			t.Errorf("the document mentions %s", never)
		}
	}
	// Every reference resolves.
	components := r.json["components"].(map[string]any)
	schemas := components["schemas"].(map[string]any)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				kind, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
				if of, _ := components[kind].(map[string]any); of[name] == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(r.json)
	usage := schemas["Usage"].(map[string]any)["properties"].(map[string]any)["billable_seconds"].(map[string]any)
	if usage["type"] != "number" {
		t.Errorf("billable_seconds is a %v", usage["type"])
	}
}

func TestReference_HasMoved(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.want(w.call("", "GET", "/api/docs", nil), 308, "")
	if to := r.Header.Get("Location"); to != "/docs/api" {
		t.Errorf("leads to %q", to)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	w := open(t)
	w.want(w.call("", "GET", "/healthz", nil), 200, "")
	if r := w.want(w.call("", "GET", "/readyz", nil), 200, ""); r.text("checks.schema") != "ok" {
		t.Errorf("%s", r.raw)
	}
	if _, err := w.db.Pool.Exec(t.Context(), "DELETE FROM goose_db_version WHERE version_id > 3"); err != nil {
		t.Fatal(err)
	}
	w.want(w.call("", "GET", "/healthz", nil), 200, "")
	if r := w.call("", "GET", "/readyz", nil); r.StatusCode != 503 || !strings.Contains(r.text("checks.schema"),
		"version 3") {
		t.Errorf("%d %s", r.StatusCode, r.raw)
	}
	w.db.Close()
	if r := w.call("", "GET", "/readyz", nil); r.StatusCode != 503 || r.text("checks.postgres") == "ok" {
		t.Errorf("%d %s", r.StatusCode, r.raw)
	}
}
