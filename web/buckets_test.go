package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testing/s3test"
)

// A bucket is added, checked and deleted; what the store refuses is shown beside its field, and the secret never.
func TestBuckets_Pages(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	store := s3test.Start(t).Config
	form := url.Values{"name": {"results"}, "endpoint": {store.Endpoint}, "bucket": {store.Bucket}, "mode": {"rw"},
		"access_key_id": {store.Access}, "secret_access_key": {"not-the-secret"}}
	res, doc := b.post("/buckets", form)
	if doc.Find("#secret_access_key-e").Length() != 1 || res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#name").AttrOr("value", "") != "results" {
		t.Errorf("%d %s", res.StatusCode, doc.Find("main").Text())
	}
	if html, _ := doc.Html(); strings.Contains(html, "not-the-secret") {
		t.Error("the secret is on the page")
	}
	form.Set("secret_access_key", store.Secret)
	res, doc = b.post("/buckets", form)
	at := res.Request.URL.Path
	if text := doc.Find("main").Text(); !strings.Contains(text, "Works") || !strings.Contains(text, store.Bucket) {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	if html, _ := doc.Html(); strings.Contains(html, store.Secret) {
		t.Error("the secret is on the page")
	}
	if _, doc = b.get("/buckets"); !strings.Contains(doc.Find("main").Text(), "results") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	_, doc = b.post(at+"/credentials", url.Values{"access_key_id": {"nobody"}, "secret_access_key": {store.Secret}})
	if doc.Find("#access_key_id-e").Length() != 1 {
		t.Errorf("%s", doc.Find("main").Text())
	}
	b.exec("UPDATE bucket SET bucket = 'nothing'")
	if _, doc = b.post(at+"/check", nil); !strings.Contains(doc.Find("main").Text(), "the store has no bucket nothing") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	if _, doc = b.post(at+"/delete", nil); !strings.Contains(doc.Find("main").Text(), "No buckets yet") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	if res, _ := b.get(at); res.StatusCode != http.StatusNotFound {
		t.Errorf("a deleted bucket: %d", res.StatusCode)
	}
}
