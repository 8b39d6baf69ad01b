package api

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for name, tc := range map[string]struct {
		peer, forwarded, want string
	}{
		"direct":               {"192.0.2.1:5", "", "192.0.2.1:5"},
		"a liar":               {"192.0.2.1:5", "198.51.100.7", "192.0.2.1:5"},
		"through our proxy":    {"10.0.0.1:5", "198.51.100.7", "198.51.100.7:0"},
		"through two":          {"10.0.0.1:5", "198.51.100.7, 10.0.0.2", "198.51.100.7:0"},
		"a liar before ours":   {"10.0.0.1:5", "1.2.3.4, 198.51.100.7", "198.51.100.7:0"},
		"only proxies":         {"10.0.0.1:5", "10.0.0.3, 10.0.0.2", "10.0.0.3:0"},
		"nonsense":             {"10.0.0.1:5", "x, y", "10.0.0.1:5"},
		"IPv6":                 {"[::1]:5", "2001:db8::7", "[2001:db8::7]:0"},
		"proxy, nothing added": {"10.0.0.1:5", "", "10.0.0.1:5"},
	} {
		var got string
		h := ClientAddress(trusted, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tc.peer
		if tc.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tc.forwarded)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
