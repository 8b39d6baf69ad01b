package link

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/serve/relay"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// A host whose firewall lets in answers only is not reachable, whatever its address; one without a firewall is, and so
// is one that lets in the ports that overlays use. A relay that does not know the request proves nothing.
func TestReachableIsWhatARelayReaches(t *testing.T) {
	t.Parallel()
	net := testnet.New(t)
	internet := net.Segment()
	at := net.Host("relay")
	at.Join(internet, "203.0.113.1/24")
	err := at.Inside(func() error {
		r, err := relay.Start(relay.Config{Listen: "203.0.113.1:3478", Secret: bytes.Repeat([]byte{3}, 32),
			Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Cleanup(func() { r.Close(t.Context()) })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	old := at.ListenPacket("203.0.113.1:3479") // answers nothing
	defer old.Close()
	const firewall = `table inet fw {
		chain input {
			type filter hook input priority 0; policy accept;
			ct state established,related accept
			%s
			meta l4proto udp drop
		}
	}`
	for _, tc := range []struct {
		name, address, rules, relay string
		direct                      bool
	}{
		{"open", "203.0.113.10/24", "", "203.0.113.1:3478", true},
		{"answers", "203.0.113.11/24", strings.Replace(firewall, "%s", "", 1), "203.0.113.1:3478", false},
		{"ports", "203.0.113.12/24", strings.Replace(firewall, "%s", "udp dport 1024-65535 accept", 1),
			"203.0.113.1:3478", true},
		{"old", "203.0.113.13/24", "", "203.0.113.1:3479", false},
	} {
		host := net.Host(tc.name)
		host.Join(internet, tc.address)
		if tc.rules != "" {
			host.Run("nft", tc.rules)
		}
		wait := 20 * time.Second // ends as soon as something arrives
		if !tc.direct {
			wait = 2 * time.Second
		}
		err := host.Inside(func() error { return proveBy(t.Context(), []string{tc.relay}, wait) })
		if (err == nil) != tc.direct {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
