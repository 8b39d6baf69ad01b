package static

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestServesUnderHashedNamesForEver(t *testing.T) {
	t.Parallel()
	a := New()
	for name, kind := range map[string]string{
		"app.css":           "text/css",
		"app.js":            "javascript",
		"terminal.css":      "text/css",
		"terminal.js":       "javascript",
		"favicon.svg":       "image/svg",
		"fonts/inter.woff2": "font/woff2",
	} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("GET", a.URL(name), nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Type"), kind) ||
			!strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "/static/app.css", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("a name without its hash is served: %d", w.Code)
	}
}

func TestStylesheetAsksForNothingOutside(t *testing.T) {
	t.Parallel()
	a := New()
	css := string(a.content[a.URL("app.css")])
	if strings.Contains(css, "://") {
		t.Error("the stylesheet names another server")
	}
	if !strings.Contains(css, a.URL("fonts/inter.woff2")) {
		t.Error("the fonts are not found by their hashed names")
	}
}

func TestTextIsServedCompressed(t *testing.T) {
	t.Parallel()
	a := New()
	for _, c := range []struct {
		asset, accept, want string
	}{
		{"app.css", "gzip, deflate, br", "gzip"},
		{"app.js", "br;q=1.0, GZIP;q=0.5", "gzip"},
		{"app.js", "gzip;q=0", ""},
		{"app.js", "", ""},
		{"fonts/inter.woff2", "gzip", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, a.URL(c.asset), nil)
		r.Header.Set("Accept-Encoding", c.accept)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); got != c.want {
			t.Errorf("%s for %q: Content-Encoding is %q, want %q", c.asset, c.accept, got, c.want)
		}
		if c.want == "gzip" && w.Body.Len() > len(a.content[a.URL(c.asset)])/2 {
			t.Errorf("%s: %d bytes compressed", c.asset, w.Body.Len())
		}
	}
}
