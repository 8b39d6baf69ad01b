package web_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// One button marks all notices that the page showed as read: not those that came since, nor those of others.
func TestNotices_MarkAllAsRead(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	other, _ := fleettest.Org(t, b.db)
	send := func(key string) {
		t.Helper()
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for _, org := range []notify.Notice{{Org: b.org(), Key: key, Severity: notify.Warn, Title: key},
				{Org: other, Key: key, Severity: notify.Warn, Title: key}} {
				if _, err := notify.Add(ctx, tx, org); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, doc := b.get("/notices"); doc.Find(`form[action="/notices/read"]`).Length() != 0 {
		t.Error("nothing is unread, and there is a button")
	}
	send("one")
	send("two")
	_, doc := b.get("/notices")
	newest := doc.Find(`form[action="/notices/read"] input[name=newest]`).AttrOr("value", "")
	send("three")
	_, doc = b.post("/notices/read", url.Values{"newest": {newest}})
	if unread := doc.Find(`main form[action$="/read"]`).FilterFunction(func(_ int, s *goquery.Selection) bool {
		return s.AttrOr("action", "") != "/notices/read"
	}); unread.Length() != 1 || !strings.Contains(doc.Find(".bell").Text(), "1") {
		t.Errorf("%d are unread: %s", unread.Length(), doc.Find("main").Text())
	}
	var theirs int
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND read_at IS NULL",
		other).Scan(&theirs); err != nil || theirs != 3 {
		t.Errorf("%d of another organisation are unread, %v", theirs, err)
	}
	if res, _ := b.post("/notices/read", url.Values{"newest": {"x"}}); res.StatusCode != 404 {
		t.Error(res.Status)
	}
}
