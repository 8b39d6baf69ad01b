package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/net/overlay/paths"
	"github.com/musterhq/muster/internal/agentapi"
)

// keepalive is how often an idle peer is sent a packet. Three missed keepalives and a margin make
// agentapi.PeerSilenceMS.
const keepalive = 2 * time.Second

// tunnel is a WireGuard device, either the kernel's or our own.
type tunnel interface {
	backend() string
	port() int
	// meet sets the addresses of peers; nil removes a peer. Call it before apply.
	meet(map[wgtypes.Key]*agentapi.Peer) error
	// relays sets the relays and the token that opens them.
	relays(names []string, token string) error
	// paths returns how the peers are reached, where the tunnel knows it.
	paths() map[wgtypes.Key]paths.Path
	// apply changes peers. Sessions of peers that are not named continue.
	apply([]peerChange) error
	// beat sends an empty packet to each of these peers.
	beat([]wgtypes.Key) error
	counters() (map[wgtypes.Key]counter, error)
	// near sets the host's networks, by which tally separates local traffic; tally returns what this tunnel has counted.
	near([]netip.Prefix)
	tally() tally
	// done is closed when the device has disappeared.
	done() <-chan struct{}
	// close ends this process's part in the tunnel. The device stays in the guest.
	close()
}

// peerChange is one step from the present peers to the wanted ones.
type peerChange struct {
	key       wgtypes.Key
	remove    bool
	endpoint  netip.AddrPort // zero: unchanged
	address   netip.Prefix   // the only allowed source and destination; zero: unchanged
	keepalive bool           // send a packet every keepalive, the first at once
}

// counter is a device's state of one peer.
type counter struct {
	rx, tx    int64
	handshake time.Time
	endpoint  string
}

// where is what a tunnel is created from.
type where struct {
	ns      *os.File // the guest's network namespace
	address *net.IPNet
	cidr    *net.IPNet
	mtu     int // of every path; larger sizes are probed
	key     wgtypes.Key
	port    int // 0 = any
	near    func(netip.Addr) int
	read    map[string]reading // what an earlier process had read from a device that still exists
}

// place parses the addresses of the settings.
func (s settings) place() (w where, err error) {
	ip := net.ParseIP(s.Address).To4()
	if ip == nil {
		return w, fmt.Errorf("the overlay's address %q is not IPv4", s.Address)
	}
	_, w.cidr, err = net.ParseCIDR(s.CIDR)
	if err != nil || !w.cidr.Contains(ip) {
		return w, fmt.Errorf("the overlay's range %q is no range that holds %s", s.CIDR, s.Address)
	}
	w.address = &net.IPNet{IP: ip, Mask: w.cidr.Mask}
	w.mtu = s.MTU
	return w, nil
}

// peerKey parses a peer's public key.
func peerKey(p agentapi.Peer) (wgtypes.Key, error) {
	k, err := wgtypes.ParseKey(p.Key)
	if err != nil {
		return k, fmt.Errorf("rank %d's key is not a WireGuard key: %w", p.Rank, err)
	}
	return k, nil
}
