package api_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/serve/api"
)

func TestSignUpAndMe(t *testing.T) {
	t.Parallel()
	w := open(t)
	r := w.want(w.call("", "POST", "/api/v1/signup", `{"email":"Ada@Example.com","password":"`+password+`","name":"Ada"}`),
		201, "")
	if r.text("user.email") != "ada@example.com" || r.text("org.name") != "Ada" ||
		!strings.HasPrefix(r.text("token"), account.TokenPrefix) {
		t.Errorf("%s", r.raw)
	}
	me := w.want(w.call(r.text("token"), "GET", "/api/v1/me", nil), 200, "")
	if me.text("org.id") != r.text("org.id") || me.text("user.id") != r.text("user.id") || len(me.list("scopes")) != 5 {
		t.Errorf("%s", me.raw)
	}
	w.want(w.call("", "POST", "/api/v1/signup", `{"email":"ada@example.com","password":"`+password+`"}`), 409, "conflict")
}

func TestSignUpIsIdempotentAndItsAnswerSealed(t *testing.T) {
	t.Parallel()
	w := open(t)
	body := `{"email":"ada@example.com","password":"` + password + `"}`
	first := w.want(w.call("", "POST", "/api/v1/signup", body, "Idempotency-Key", "k1"), 201, "")
	again := w.want(w.call("", "POST", "/api/v1/signup", body, "Idempotency-Key", "k1"), 201, "")
	if again.raw != first.raw || again.Header.Get("Idempotent-Replayed") != "true" ||
		first.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("first %s\nagain %s %v", first.raw, again.raw, again.Header)
	}
	w.want(w.call("", "POST", "/api/v1/signup", strings.Replace(body, "ada@", "eve@", 1), "Idempotency-Key", "k1"), 422,
		"idempotency_mismatch")
	w.want(w.call("", "POST", "/api/v1/signup", body, "Idempotency-Key", "k\x01"), 422, "validation_failed")
	var leaks int
	if err := w.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM idempotency_key WHERE position($1::bytea in "+
		"response) > 0 OR NOT sealed", []byte("muster_pat")).Scan(&leaks); err != nil || leaks != 0 {
		t.Errorf("%d answers lie open, %v", leaks, err)
	}
}

func TestTwinsMakeOneToken(t *testing.T) {
	t.Parallel()
	w := open(t)
	owner := w.user("ada")
	var wg sync.WaitGroup
	raws := make([]string, 6)
	for i := range raws {
		wg.Go(func() {
			raws[i] = w.call(owner, "POST", "/api/v1/tokens", `{"name":"ci","scopes":["read"]}`, "Idempotency-Key", "one").raw
		})
	}
	wg.Wait()
	for _, raw := range raws {
		if raw != raws[0] {
			t.Errorf("answers differ:\n%s\n%s", raws[0], raw)
		}
	}
	if n := len(w.call(owner, "GET", "/api/v1/tokens", nil).list("items")); n != 2 {
		t.Errorf("%d tokens, want the first one and ci", n)
	}
}

func TestTokensOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	owner, stranger := w.user("ada"), w.user("eve")
	made := w.want(w.call(owner, "POST", "/api/v1/tokens", `{"name":"ci","scopes":["read"],"expires_in":60}`), 201, "")
	reader, path := made.text("token"), "/api/v1/tokens/"+made.text("id")
	w.want(w.call(reader, "GET", "/api/v1/tokens", nil), 200, "")
	w.want(w.call(reader, "POST", "/api/v1/tokens", `{"name":"more","scopes":["billing"]}`), 403, "forbidden")
	w.want(w.call(stranger, "DELETE", path, nil), 404, "not_found")
	w.want(w.call(owner, "DELETE", "/api/v1/tokens/nonsense", nil), 404, "not_found")
	w.want(w.call(owner, "DELETE", path, nil), 204, "")
	w.want(w.call(owner, "DELETE", path, nil), 404, "not_found")
	gone := w.want(w.call(reader, "GET", "/api/v1/me", nil), 401, "unauthorized")
	if gone.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
}

func TestListsAreCutIntoPages(t *testing.T) {
	t.Parallel()
	w := open(t)
	owner := w.user("ada")
	for range 4 {
		w.token(owner, "read")
	}
	seen, after := map[string]bool{}, ""
	for range 5 {
		r := w.want(w.call(owner, "GET", "/api/v1/tokens?limit=2&after="+after, nil), 200, "")
		for _, item := range r.list("items") {
			seen[item.(map[string]any)["id"].(string)] = true
		}
		if after = r.text("next"); after == "" {
			break
		}
	}
	if len(seen) != 5 || after != "" {
		t.Errorf("%d tokens seen, next %q", len(seen), after)
	}
	for _, q := range []string{"limit=0", "limit=201", "limit=x", "after=tok_x", "after=%00"} {
		w.want(w.call(owner, "GET", "/api/v1/tokens?"+q, nil), 422, "validation_failed")
	}
}

func TestSSHKeysOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	owner := w.user("ada")
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ0UxE5kWyYxcTjF0BzvN4xEGGAhnnuTX5ySDyX/iNQ ada@laptop"
	made := w.want(w.call(owner, "POST", "/api/v1/ssh-keys", map[string]any{"public_key": key}), 201, "")
	if made.text("name") != "ada@laptop" || !strings.HasPrefix(made.text("fingerprint"), "SHA256:") {
		t.Errorf("%s", made.raw)
	}
	w.want(w.call(owner, "POST", "/api/v1/ssh-keys", map[string]any{"public_key": key}), 409, "conflict")
	private := w.want(w.call(owner, "POST", "/api/v1/ssh-keys",
		map[string]any{"public_key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk"}), 422, "validation_failed")
	if !strings.Contains(private.text("detail"), "PRIVATE") || strings.Contains(private.raw, "b3BlbnNz") {
		t.Errorf("%s", private.raw)
	}
	w.want(w.call(w.token(owner, "read"), "POST", "/api/v1/ssh-keys", map[string]any{"public_key": key}), 403, "forbidden")
	w.want(w.call(w.token(owner, "read"), "GET", "/api/v1/ssh-keys", nil), 200, "")
	w.want(w.call(w.user("eve"), "DELETE", "/api/v1/ssh-keys/"+made.text("id"), nil), 404, "not_found")
	w.want(w.call(owner, "DELETE", "/api/v1/ssh-keys/"+made.text("id"), nil), 204, "")
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := open(t)
	owner := w.user("ada")
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code, where        string
	}{
		"unknown field": {"POST", "/api/v1/tokens", `{"name":"x","scopes":["read"],"s3cret":1}`, 422, "validation_failed",
			"s3cret"},
		"wrong type": {"POST", "/api/v1/tokens", `{"name":["hunter2"],"scopes":["read"]}`, 422, "validation_failed",
			"name"},
		"missing field": {"POST", "/api/v1/tokens", `{"scopes":["read"]}`, 422, "validation_failed", ""},
		"wrong item": {"POST", "/api/v1/tokens", `{"name":"x","scopes":["hunter2"]}`, 422, "validation_failed",
			"scopes[0]"},
		"not JSON":      {"POST", "/api/v1/tokens", `{"name":hunter2`, 422, "validation_failed", ""},
		"two documents": {"POST", "/api/v1/tokens", `{"name":"x","scopes":["read"]}{}`, 422, "validation_failed", ""},
		"not an object": {"POST", "/api/v1/tokens", `"hunter2"`, 422, "validation_failed", ""},
		"null":          {"POST", "/api/v1/tokens", `null`, 422, "validation_failed", ""},
		"no body":       {"POST", "/api/v1/tokens", ``, 422, "validation_failed", ""},
		"too large": {"POST", "/api/v1/tokens", `{"name":"` + strings.Repeat("x", 70_000) + `"}`, 413, "too_large",
			""},
		"short password": {"POST", "/api/v1/signup", `{"email":"b@example.com","password":"hunter2"}`, 422,
			"validation_failed", "password"},
		"unknown path":     {"GET", "/api/v1/nonsense", ``, 404, "not_found", ""},
		"method":           {"PUT", "/api/v1/me", ``, 405, "not_found", ""},
		"spec, unknown":    {"POST", "/api/v1/quotes", `{"image":"x","hunter2":1}`, 422, "validation_failed", "hunter2"},
		"spec, wrong type": {"POST", "/api/v1/quotes", `{"image":"x","nodes":"hunter2"}`, 422, "validation_failed", "nodes"},
		"spec, not JSON":   {"POST", "/api/v1/quotes", `{"image"`, 422, "validation_failed", ""},
		"spec, huge": {"POST", "/api/v1/quotes", `{"image":"` + strings.Repeat("x", 600_000) + `"}`, 413, "too_large",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.want(w.call(owner, tc.method, tc.path, tc.body), tc.status, tc.code)
			if tc.where != "" {
				found := false
				for _, e := range r.list("errors") {
					found = found || e.(map[string]any)["location"] == tc.where
				}
				if !found {
					t.Errorf("no error at %s: %s", tc.where, r.raw)
				}
			}
			if tc.where != "hunter2" && strings.Contains(r.raw, "hunter2") {
				t.Errorf("the answer repeats what was sent: %s", r.raw)
			}
			if r.text("detail") == "" || r.text("title") == "" {
				t.Errorf("no words: %s", r.raw)
			}
		})
	}
	if w.log.Len() > 0 && strings.Contains(w.log.String(), "hunter2") {
		t.Errorf("the log repeats what was sent: %s", w.log)
	}
	if r := w.call(owner, "PUT", "/api/v1/me", nil); r.text("title") != "The path does not take this method" {
		t.Errorf("405 has the title %q", r.text("title"))
	}
	r := w.call(owner, "POST", "/api/v1/tokens", `name=x`, "Content-Type", "application/x-www-form-urlencoded")
	w.want(r, 415, "validation_failed")
}

func TestInternalFailuresTellNothing(t *testing.T) {
	t.Parallel()
	w := open(t)
	owner := w.user("ada")
	if _, err := w.db.Pool.Exec(t.Context(), "ALTER TABLE ssh_key RENAME TO hidden_key"); err != nil {
		t.Fatal(err)
	}
	r := w.want(w.call(owner, "GET", "/api/v1/ssh-keys", nil), 500, "internal")
	if strings.Contains(r.raw, "ssh_key") || strings.Contains(r.raw, "SQL") {
		t.Errorf("leaks: %s", r.raw)
	}
	if name := r.Header.Get("Request-Id"); name == "" || !strings.Contains(w.log.String(), name) ||
		!strings.Contains(r.raw, name) {
		t.Errorf("request %q is not in the log:\n%s", name, w.log)
	}
}

func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	w := open(t, func(c *api.Config, _ *account.Config) { c.CallerPerMinute = 5 })
	owner, other := w.user("ada"), w.user("eve")
	var last reply
	for range 20 {
		if last = w.call(owner, "GET", "/api/v1/me", nil); last.StatusCode != http.StatusOK {
			break
		}
	}
	w.want(last, 429, "rate_limited")
	if last.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.want(w.call(other, "GET", "/api/v1/me", nil), 200, "")
}
