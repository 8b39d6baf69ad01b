package web_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/data/store"
)

func folderOf(t *testing.T, site string) *store.Folder {
	t.Helper()
	f, err := store.OpenFolder(t.TempDir(), site, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A volume is created, shown with what is durable of it, and deleted; what is typed wrong is shown beside its field.
func TestVolumes_Pages(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, doc := b.get("/volumes")
	if !strings.Contains(doc.Text(), "No volumes yet") {
		t.Fatal(doc.Find("main").Text())
	}
	_, doc = b.post("/volumes", url.Values{"name": {"Not A Name"}, "size_gb": {"x"}})
	if doc.Find("#size_gb-e").Length() != 1 {
		t.Errorf("a bad size is not shown beside its field: %s", doc.Find("main").Text())
	}
	_, doc = b.post("/volumes", url.Values{"name": {"Not A Name"}, "size_gb": {"10"}})
	if doc.Find("#name-e").Length() != 1 {
		t.Errorf("a bad name is not shown beside its field: %s", doc.Find("main").Text())
	}
	res, doc := b.post("/volumes", url.Values{"name": {"training-data"}, "size_gb": {"10"}})
	if text := doc.Find("main").Text(); !strings.Contains(text, "training-data") || !strings.Contains(text, "10 GB") ||
		!strings.Contains(text, "Nothing of it is durable yet") {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	at := res.Request.URL.Path
	res, doc = b.post(at+"/snapshots", nil)
	if res.StatusCode != http.StatusConflict || !strings.Contains(doc.Find("main").Text(), "No cluster writes") {
		t.Errorf("%d %s", res.StatusCode, doc.Find("main").Text())
	}
	if _, doc = b.get("/volumes"); !strings.Contains(doc.Find("main").Text(), "training-data") {
		t.Errorf("%s", doc.Find("main").Text())
	}
	if res, _ := b.get("/volumes/vol_01jd9w6n3qf8vtx2m5k7c4hzrb"); res.StatusCode != http.StatusNotFound {
		t.Errorf("another volume: %d", res.StatusCode)
	}
	_, doc = b.post(at+"/delete", nil)
	if !strings.Contains(doc.Find("main").Text(), "No volumes yet") {
		t.Errorf("%s", doc.Find("main").Text())
	}
}
