package page

import (
	"net/http/httptest"
	"testing"
)

func TestOwnPath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/clusters/x?a=b#c": "/clusters/x?a=b#c", "": "/", "clusters": "/", "//evil.example": "/", "/\t/evil.example": "/",
		"/\n/evil.example": "/", "/\r/evil.example": "/", "/\\evil.example": "/", "https://evil.example": "/",
		"/\x00/evil": "/", "/a\x7fb": "/", "/%2f/evil.example": "/%2f/evil.example",
	} {
		if got := OwnPath(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCookieOverHTTPSIsBoundToTheHost(t *testing.T) {
	t.Parallel()
	for secure, want := range map[bool]string{true: "__Host-muster_session", false: "muster_session"} {
		s := &Site{secure: secure}
		w := httptest.NewRecorder()
		s.SetCookie(w, s.SessionCookie(), "x", 0)
		s.secureHeaders(w)
		c := w.Result().Cookies()[0]
		if c.Name != want || c.Secure != secure || c.Path != "/" || c.Domain != "" {
			t.Errorf("%+v", c)
		}
		if got := w.Header().Get("Strict-Transport-Security"); (got != "") != secure {
			t.Errorf("HSTS %q over https %v", got, secure)
		}
	}
}
