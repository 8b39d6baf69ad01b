//go:build net

package e2e

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// Two hosts have IPv6 alone, and reach the platform, its registry and each other by it; a third has IPv4 alone, behind
// a router, and the relay joins them.
func TestNetIPv6(t *testing.T) {
	w := newWorld(t)
	a := w.Box(t, "six-a", w.Internet, "", "1.00", "2001:db8::a/64")
	b := w.Box(t, "six-b", w.Internet, "", "1.00", "2001:db8::b/64")
	four := w.Box(t, "four", w.Home(testnet.Symmetric), "192.168.1.1", "1.00", "192.168.1.10/24")
	r := w.renter(t, 20*money.Unit)
	c := r.run(t, w.spec(3, 1, "sleep", "86400"))
	w.awaitPaths(t, r, c, map[[2]*box]string{{a, b}: "direct", {a, four}: "relay", {b, four}: "relay"})
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	u := r.settle(t, c)
	r.owes(t, u, r.trained(t, r.rent(t, w.job(3, time.Second))))
	w.idle(t)
	w.check(t)
}
