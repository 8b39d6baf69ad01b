package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/testing/apifuzz"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// TestDatabaseAway_EveryAnswerIs503 kills PostgreSQL and calls every operation: each says that it is unavailable and
// when to try again. When PostgreSQL is back, so is the API.
func TestDatabaseAway_EveryAnswerIs503(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	d, err := db.Open(t.Context(), db.Config{URL: server.NewURL(), MaxConns: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	w := openOn(t, d)
	renter := w.user("ada")
	doc, _, err := apifuzz.Read([]byte(w.call("", "GET", api.Base+"/openapi.json", nil).raw))
	if err != nil {
		t.Fatal(err)
	}

	server.Kill()
	operations := apifuzz.New(doc, &apifuzz.Memory{}, 1, func(string, string) bool { return false }).Operations()
	if len(operations) < 100 {
		t.Fatalf("%d operations: the document has more", len(operations))
	}
	for _, op := range operations {
		method, path, _ := strings.Cut(op, " ")
		path = strings.NewReplacer("{id}", "x", "{", "", "}", "").Replace(path)
		var body any
		if method != http.MethodGet && method != http.MethodDelete {
			body = `{"email":"eve@example.com","password":"` + password + `"}`
		}
		switch path { // open to everybody, so that their body is looked at before the database
		case api.Base + "/device-logins":
			body = `{"machine":"laptop"}`
		case api.Base + "/device-logins/token":
			body = `{"device_code":"x"}`
		}
		r := w.call(renter, method, path, body, "Idempotency-Key", "k")
		if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, Retry-After %q, want 503 with one: %s", op, r.StatusCode, r.Header.Get("Retry-After"), r.raw)
		}
	}
	w.want(w.call("", "GET", "/healthz", nil), 200, "")
	if r := w.call("", "GET", "/readyz", nil); r.StatusCode != 503 {
		t.Errorf("readyz: %d", r.StatusCode)
	}

	server.Start()
	w.want(w.call(renter, "GET", api.Base+"/me", nil), 200, "")
}
