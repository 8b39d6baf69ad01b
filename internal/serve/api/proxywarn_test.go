package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// A request that says it was forwarded by an address which is not listed is logged once; one by a listed proxy is not.
func TestAnUnlistedProxyIsLogged(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	served := 0
	h := WarnUnlistedProxy(slog.New(slog.NewTextHandler(&out, nil)), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	ask := func(peer, header string) int {
		r := httptest.NewRequest("GET", "/", nil)
		if r.RemoteAddr = peer; header != "" {
			r.Header.Set(header, "198.51.100.7")
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		return strings.Count(out.String(), "MUSTER_TRUSTED_PROXIES")
	}
	for i, c := range []struct {
		peer, header string
		lines        int
	}{
		{"10.1.2.3:4", "X-Forwarded-For", 0}, {"192.0.2.1:4", "", 0}, {"192.0.2.1:4", "X-Forwarded-For", 1},
		{"192.0.2.2:4", "Forwarded", 1},
	} {
		if n := ask(c.peer, c.header); n != c.lines {
			t.Errorf("%d: %d lines, want %d: %s", i, n, c.lines, out.String())
		}
	}
	if served != 4 {
		t.Errorf("%d requests served", served)
	}
}
