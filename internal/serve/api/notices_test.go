package api_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/serve/api"
)

// notice adds a notice to the org of a token.
func (w *world) notice(token string) id.Notice {
	w.t.Helper()
	org, key := w.orgOf(token), id.New[id.Notice]().String()
	if err := w.db.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := notify.Add(ctx, tx, notify.Notice{Org: org, Key: key, Severity: notify.Warn, Title: "Look", Body: "Now."})
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	list, err := notify.NewNotices(w.db).List(w.t.Context(), org, notify.Filter{Limit: 1})
	if err != nil {
		w.t.Fatal(err)
	}
	return list[0].ID
}

// webhook adds a webhook to the org of a token, and removes the others.
func (w *world) webhook(token string) string {
	w.t.Helper()
	w.exec("DELETE FROM webhook WHERE org_id = $1", w.orgOf(token))
	return w.want(w.call(token, "POST", api.Base+"/webhooks", map[string]any{"url": "https://example.com/muster"}), 201,
		"").text("id")
}

func TestNoticesOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, eve := w.user("ada"), w.user("eve")
	older, newer := w.notice(ada), w.notice(ada)
	unread := func() int {
		return len(w.want(w.call(ada, "GET", api.Base+"/notices?unread=true", nil), 200, "").list("items"))
	}
	if unread() != 2 {
		t.Fatalf("%d unread notices", unread())
	}
	w.want(w.call(eve, "POST", api.Base+"/notices/"+older.String()+"/read", nil), 404, "not_found")
	w.want(w.call(ada, "POST", api.Base+"/notices/"+newer.String()+"/read", nil), 200, "")
	if unread() != 1 {
		t.Errorf("%d unread after one was read", unread())
	}
	w.want(w.call(eve, "POST", api.Base+"/notices/read", map[string]any{"newest": newer.String()}), 200, "")
	if unread() != 1 {
		t.Error("another organisation read it")
	}
	w.want(w.call(ada, "POST", api.Base+"/notices/read", map[string]any{"newest": newer.String()}), 200, "")
	if unread() != 0 {
		t.Errorf("%d unread after all were read", unread())
	}
}

func TestWebhooksOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, eve := w.user("ada"), w.user("eve")
	for _, bad := range []string{"http://example.com/", "https://127.0.0.1/", "https://[::1]/", "https://10.1.2.3/",
		"https://169.254.169.254/latest", "https://localhost/", "https://metadata.google.internal/",
		"https://a:b@example.com/",
		"https://100.64.1.1/", "https://[fd00::1]/", "https://[::ffff:127.0.0.1]/", "ftp://example.com/", "https:///x"} {
		w.want(w.call(ada, "POST", api.Base+"/webhooks", map[string]any{"url": bad}), 422, "validation_failed")
	}
	made := w.want(w.call(ada, "POST", api.Base+"/webhooks", map[string]any{"url": "https://example.com/a"}), 201, "")
	hook := made.text("id")
	if len(made.text("secret")) < 30 {
		t.Errorf("secret %q", made.text("secret"))
	}
	listed := w.want(w.call(ada, "GET", api.Base+"/webhooks", nil), 200, "").list("items")
	if len(listed) != 1 || listed[0].(map[string]any)["secret"] != nil {
		t.Errorf("the list shows %v", listed)
	}
	n := w.notice(ada)
	sent := w.want(w.call(ada, "GET", api.Base+"/webhooks/"+hook+"/deliveries", nil), 200, "").list("items")
	if len(sent) != 1 || sent[0].(map[string]any)["notice_id"] != n.String() ||
		sent[0].(map[string]any)["state"] != "pending" {
		t.Errorf("deliveries: %v", sent)
	}
	w.want(w.call(eve, "GET", api.Base+"/webhooks/"+hook+"/deliveries", nil), 404, "not_found")
	w.want(w.call(eve, "POST", api.Base+"/webhooks/"+hook+"/deliveries/"+n.String()+"/retry", nil), 404, "not_found")
	w.want(w.call(eve, "DELETE", api.Base+"/webhooks/"+hook, nil), 404, "not_found")
	w.want(w.call(ada, "POST", api.Base+"/webhooks/"+hook+"/deliveries/"+n.String()+"/retry", nil), 200, "")
	for range notify.MaxWebhooks - 1 {
		w.want(w.call(ada, "POST", api.Base+"/webhooks", map[string]any{"url": "https://example.com/b"}), 201, "")
	}
	w.want(w.call(ada, "POST", api.Base+"/webhooks", map[string]any{"url": "https://example.com/b"}), 403,
		"quota_exceeded")
	w.want(w.call(ada, "DELETE", api.Base+"/webhooks/"+hook, nil), 204, "")
	w.want(w.call(ada, "DELETE", api.Base+"/webhooks/"+hook, nil), 404, "not_found")
}
