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
	if _, _, err := w.acc.Sessions.SignIn(t.Context(), in); err != nil {
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
	if _, _, err := w.acc.Sessions.SignIn(t.Context(), in); err == nil {
		t.Error("the old password still works")
	}
}
