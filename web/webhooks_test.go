package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

const receiver = "https://example.com/muster"

// notice adds a notice to the visitor's organisation.
func (b *browser) notice(title string) {
	b.t.Helper()
	err := b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := notify.Add(ctx, tx, notify.Notice{Org: b.org(), Key: title, Severity: notify.Warn, Title: title})
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// createWebhook sends the page's form and returns the secret that the answer shows.
func (b *browser) createWebhook(once string) string {
	b.t.Helper()
	_, doc := b.post("/notices/webhooks", url.Values{"url": {receiver}, "once": {once}})
	secret := doc.Find("#new-secret code").Text()
	if !strings.HasPrefix(secret, "whsec_") {
		b.t.Fatalf("no secret: %s", doc.Find("main").Text())
	}
	return secret
}

// The secret of a webhook is shown once; a form that is sent twice creates one webhook; the secret is stored only
// sealed.
func TestWebhooks_SecretIsShownOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	res, doc := b.post("/notices/webhooks", url.Values{"url": {"http://example.com/muster"}})
	if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(doc.Find("#url-e").Text(), "https://") ||
		doc.Find("#url").AttrOr("value", "") != "http://example.com/muster" {
		t.Errorf("%d %s", res.StatusCode, doc.Find("#new-webhook").Text())
	}
	secret := b.createWebhook("sent-twice")
	if again := b.createWebhook("sent-twice"); again != secret {
		t.Error("the same form got another secret")
	}
	_, doc = b.get("/notices/webhooks")
	if rows := doc.Find("#webhooks tbody tr"); rows.Length() != 1 || strings.Contains(doc.Text(), secret) {
		t.Errorf("%d webhooks: %s", rows.Length(), doc.Find("main").Text())
	}
	var plain int
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM idempotency_key WHERE path = '/notices/webhooks' AND "+
		"NOT sealed").Scan(&plain); err != nil || plain != 0 {
		t.Errorf("%d answers are stored as they are, %v", plain, err)
	}
}

// What a webhook received and what it has not is listed; a disabled one is enabled, and a notice is sent again.
func TestWebhooks_DeliveriesEnableAndRetry(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.createWebhook("")
	b.notice("The balance runs low")
	_, doc := b.get("/notices/webhooks")
	page := doc.Find("#webhooks th a").AttrOr("href", "")
	deliveries := func() string {
		t.Helper()
		_, doc := b.get(page)
		return strings.Join(strings.Fields(doc.Find("main").Text()), " ")
	}
	if got := deliveries(); !strings.Contains(got, "The balance runs low") || !strings.Contains(got, "Waiting") {
		t.Errorf("a delivery that is due: %s", got)
	}
	b.exec("UPDATE webhook_delivery SET failed_at = now(), status = 503, attempts = 9, error = 'the address answers 503'")
	b.exec("UPDATE webhook SET disabled_at = now(), disabled_why = 'the address answers 503'")
	got := deliveries()
	for _, want := range []string{"Disabled since", "The address answers 503.", "Given up", "503 Service Unavailable"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q: %s", want, got)
		}
	}
	if strings.Contains(got, "Send again:") {
		t.Errorf("a disabled webhook offers to send: %s", got)
	}
	b.post(page+"/enable", nil)
	_, doc = b.get(page)
	retry := doc.Find(`#deliveries form`).AttrOr("action", "")
	if got := deliveries(); strings.Contains(got, "Disabled") || !strings.HasSuffix(retry, "/retry") {
		t.Errorf("after it was enabled, retry at %q: %s", retry, got)
	}
	b.post(retry, nil)
	if got := deliveries(); !strings.Contains(got, "Waiting") {
		t.Errorf("after the retry: %s", got)
	}
	b.post(page+"/delete", nil)
	if _, doc := b.get("/notices/webhooks"); doc.Find("#webhooks").Length() != 0 {
		t.Error("a deleted webhook is listed")
	}
}

// Webhooks of another organisation do not exist, and a viewer gets no forms.
func TestWebhooks_OfOthersAndForViewers(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.createWebhook("")
	b.notice("One notice")
	_, doc := b.get("/notices/webhooks")
	page := doc.Find("#webhooks th a").AttrOr("href", "")
	_, doc = b.get(page)
	retry := doc.Find(`#deliveries form`).AttrOr("action", "")
	b.exec("UPDATE membership SET role = 'viewer' WHERE org_id = $1", b.org())
	for _, path := range []string{"/notices/webhooks", page} {
		if _, doc := b.get(path); doc.Find(`main form[method=post]`).Length() != 0 {
			t.Errorf("%s has forms for a viewer", path)
		}
	}
	b.exec("UPDATE membership SET role = 'owner' WHERE org_id = $1", b.org())
	other, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE webhook SET org_id = $1", other)
	if status := b.status(http.MethodGet, page); status != http.StatusNotFound {
		t.Errorf("GET %s: %d", page, status)
	}
	for _, form := range []string{page + "/enable", page + "/delete", retry} {
		if status := b.status(http.MethodPost, form); status != http.StatusNotFound {
			t.Errorf("POST %s: %d", form, status)
		}
	}
}
