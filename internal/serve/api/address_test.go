package api_test

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/serve/api"
)

// The audit trail keeps the client's address, also behind a proxy of ours; what anybody else says of it is not
// believed.
func TestTheTrailKeepsTheClientsAddress(t *testing.T) {
	t.Parallel()
	w := open(t)
	token := w.user("ada")
	face := api.ClientAddress([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, w.api)
	for name, c := range map[string]struct{ peer, said, want string }{
		"straight":            {"192.0.2.1:4711", "", "192.0.2.1"},
		"straight, by IPv6":   {"[2001:db8::7]:4711", "", "2001:db8::7"},
		"our proxy":           {"10.0.0.9:4711", "198.51.100.7", "198.51.100.7"},
		"two of our proxies":  {"10.0.0.9:4711", "198.51.100.8, 10.0.0.3", "198.51.100.8"},
		"a client that lies":  {"10.0.0.9:4711", "203.0.113.66, 198.51.100.9", "198.51.100.9"},
		"a proxy not of ours": {"192.0.2.2:4711", "203.0.113.66", "192.0.2.2"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/tokens",
			strings.NewReader(`{"name":"`+name+`","scopes":["read"]}`))
		r.RemoteAddr = c.peer
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		if c.said != "" {
			r.Header.Set("X-Forwarded-For", c.said)
		}
		rec := httptest.NewRecorder()
		face.ServeHTTP(rec, r)
		if rec.Code != 201 {
			t.Fatalf("%s: %d %s", name, rec.Code, rec.Body)
		}
		var got string
		if err := w.db.Pool.QueryRow(t.Context(), `SELECT address FROM audit_event WHERE action = 'token.create' AND
			detail->>'name' = $1`, name).Scan(&got); err != nil {
			t.Fatal(name, err)
		}
		if got != c.want {
			t.Errorf("%s: the trail has %s, want %s", name, got, c.want)
		}
	}
}
