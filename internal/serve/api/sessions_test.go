package api_test

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
)

func TestPasswordAndSessions(t *testing.T) {
	t.Parallel()
	w := open(t)
	token := w.user("ada")
	in := account.SignIn{Email: "ada@example.com", Password: password, UserAgent: "test"}
	if _, _, err := w.acc.SignIn(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r := w.want(w.call(token, "GET", "/api/v1/me/sessions", nil), 200, "")
	items, _ := r.json["items"].([]any)
	if len(items) != 1 {
		t.Fatal(r.raw)
	}
	session, _ := items[0].(map[string]any)["id"].(string)
	w.want(w.call(w.token(token, "read"), "GET", "/api/v1/me/sessions", nil), 403, "forbidden")
	w.want(w.call(w.user("eve"), "DELETE", "/api/v1/me/sessions/"+session, nil), 404, "not_found")
	w.want(w.call(token, "DELETE", "/api/v1/me/sessions/"+session, nil), 204, "")
	w.want(w.call(token, "PUT", "/api/v1/me/password", `{"old_password":"wrong","new_password":"another fine password"}`),
		422, "validation_failed")
	w.want(w.call(token, "PUT", "/api/v1/me/password", `{"old_password":"`+password+
		`","new_password":"another fine password"}`), 200, "")
	if _, _, err := w.acc.SignIn(t.Context(), in); err == nil {
		t.Error("the old password still works")
	}
}

// TestReplayedRent says so: its handler builds its answer itself.
func TestReplayedAnswersSaySo(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter := w.user("ada")
	w.sell(w.user("op"), 8, "2.00")
	w.fund(renter, "100.00")
	for _, c := range []struct{ path, body string }{
		{"/api/v1/clusters", `{"nodes":1,"gpus_per_node":1,"image":"registry.test/job:1"}`},
		{"/api/v1/billing/topups", `{"amount":"20.00"}`},
		{"/api/v1/billing/cards", `{}`},
	} {
		first := w.call(renter, "POST", c.path, c.body, "Idempotency-Key", "k")
		second := w.call(renter, "POST", c.path, c.body, "Idempotency-Key", "k")
		if first.StatusCode >= 300 || second.StatusCode != first.StatusCode ||
			first.Header.Get("Idempotent-Replayed") != "" || second.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %q, then %d %q: %s", c.path, first.StatusCode, first.Header.Get("Idempotent-Replayed"),
				second.StatusCode, second.Header.Get("Idempotent-Replayed"), first.raw)
		}
	}
}
