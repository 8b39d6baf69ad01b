package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/serve/api"
)

// TestADemotedAdminsTokenIsForbidden on every admin route, even where nothing but the user's row says so.
func TestADemotedAdminsTokenIsForbidden(t *testing.T) {
	t.Parallel()
	w := open(t)
	boss := w.boss("ann")
	w.want(w.call(boss, "GET", "/api/v1/admin/audit-events", nil), 200, "")
	if _, err := w.db.Pool.Exec(t.Context(), "UPDATE app_user SET admin = false"); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, route := range api.Routes(w.api) {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, "/api/v1/admin/") {
			continue
		}
		seen++
		path = strings.NewReplacer("{id}", "x", "{code}", "x", "{name}", "x", "{invoice}", "x").Replace(path)
		if r := w.call(boss, method, path, "{}"); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", route, r.StatusCode)
		}
	}
	if seen < 20 {
		t.Errorf("%d admin routes seen", seen)
	}
	w.want(w.call(boss, "POST", "/api/v1/tokens", `{"name":"x","scopes":["admin"]}`), 403, "forbidden")
}
