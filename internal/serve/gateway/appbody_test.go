package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// countingBody counts how often it is read.
type countingBody struct{ reads int }

func (b *countingBody) Read(p []byte) (int, error) { b.reads++; return len(p), nil }
func (b *countingBody) Close() error               { return nil }

// TestStrangersBodiesAreNotRead: before anybody is let in to an app, nothing of what they send is read, let alone
// parsed as a form, whose files would go to the server's disk.
func TestStrangersBodiesAreNotRead(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := newTestApps(t, 1, &now)
	host := App{id.New[id.Cluster](), 0, 8080}.label() + ".apps.muster.example"
	for _, path := range []string{openPath, openPath + "?pass=x", "/", "/upload"} {
		body := new(countingBody)
		r := httptest.NewRequest("POST", "https://"+host+path, body)
		r.ContentLength = -1
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if body.reads > 0 || w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "<p") {
			t.Errorf("%s: %d reads, status %d", path, body.reads, w.Code)
		}
	}
}
