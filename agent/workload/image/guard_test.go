package image

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// TestTheHostsOwnServicesAreOutOfReach: whatever a registry says, no service on this machine gets a request.
func TestTheHostsOwnServicesAreOutOfReach(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	victim := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		io.WriteString(w, `{"token":"t"}`)
	}))
	t.Cleanup(victim.Close)
	host := victim.Listener.Addr().String()

	realm := serve(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+victim.URL+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	tlsRealm := serve(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	redirect := serve(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, victim.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
	})
	blobs := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") &&
				strings.Contains(r.Header.Get("User-Agent"), "muster-agent") {
				http.Redirect(w, r, victim.URL+r.URL.Path, http.StatusTemporaryRedirect)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	push(t, blobs+"/app:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": []byte("1")})))
	e := setUp(t, realm, tlsRealm, redirect, blobs)
	for _, image := range []string{host + "/app:1", "localhost:" + host[strings.LastIndex(host, ":")+1:] + "/app:1",
		realm + "/app:1", tlsRealm + "/app:1",
		redirect + "/app:1", blobs + "/app:1", "169.254.169.254/latest:1", "10.0.0.1:5000/x:1", "[::1]:5000/x:1"} {
		t.Run(image, func(t *testing.T) {
			e.t = t
			e.pull(Request{Image: image}, agentapi.ReasonImageRefused)
		})
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("a service of the host was asked %d times", n)
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"8.8.8.8":          true,
		"2606:4700::1111":  true,
		"127.0.0.1":        false,
		"10.1.2.3":         false,
		"172.31.0.1":       false,
		"192.168.1.1":      false,
		"169.254.169.254":  false,
		"100.64.0.1":       false,
		"0.0.0.0":          false,
		"255.255.255.255":  false,
		"224.0.0.1":        false,
		"168.63.129.16":    false,
		"::1":              false,
		"fe80::1":          false,
		"fd00::1":          false,
		"::ffff:127.0.0.1": false,
		"64:ff9b::7f00:1":  false,
		"2002:7f00:1::":    false,
		"::":               false,
	} {
		if got := public(netip.MustParseAddr(s)); got != want {
			t.Errorf("public(%s) = %v", s, got)
		}
	}
}
