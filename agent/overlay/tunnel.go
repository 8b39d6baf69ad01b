package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/overlay/paths"
	"github.com/musterhq/muster/internal/agentapi"
)

// keepalive is how often an idle peer is sent something. Three missed ones and a little are agentapi.PeerSilenceMS.
const keepalive = 2 * time.Second

// tunnel is a WireGuard device: the kernel's or our own.
type tunnel interface {
	backend() string
	port() int
	// meet says where peers may be found: nil for one that is gone. It comes before apply.
	meet(map[wgtypes.Key]*agentapi.Peer) error
	// relays says which relays there are, and what opens them.
	relays(names []string, token string) error
	// paths tells how the peers are reached, where the tunnel knows.
	paths() map[wgtypes.Key]paths.Path
	// apply changes peers. Sessions of peers it does not name go on.
	apply([]peerChange) error
	// beat sends an empty packet to each of these peers.
	beat([]wgtypes.Key) error
	counters() (map[wgtypes.Key]counter, error)
	// near says which networks the host is in, for tally: what this tunnel has counted.
	near([]netip.Prefix)
	tally() tally
	// done is closed when the device has died under us.
	done() <-chan struct{}
}

// peerChange is one step from the present peers to the wanted ones.
type peerChange struct {
	key       wgtypes.Key
	remove    bool
	endpoint  netip.AddrPort // zero: leave it
	address   netip.Prefix   // the only source and destination allowed; zero: leave it
	keepalive bool           // send something every keepalive, the first at once
}

// counter is what a device tells of a peer.
type counter struct {
	rx, tx    int64
	handshake time.Time
	endpoint  string
}

// where is what a tunnel is made from.
type where struct {
	ns      *os.File // the guest's network namespace
	address *net.IPNet
	cidr    *net.IPNet
	mtu     int
	key     wgtypes.Key
	port    int // 0 = any
	near    func(netip.Addr) int
	read    map[string]reading // what a former process had read of a device that lives on
}

// place reads the settings' addresses.
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

// open makes the tunnel: the kernel's where it has one, else our own. Whichever device a former process left in the
// namespace is taken over if it is of the same kind.
func open(w where, userspace bool) (tunnel, error) {
	if !userspace && KernelWireGuard() {
		return openKernel(w)
	}
	return openUserspace(w)
}

// peerKey reads a peer's public key.
func peerKey(p agentapi.Peer) (wgtypes.Key, error) {
	k, err := wgtypes.ParseKey(p.Key)
	if err != nil {
		return k, fmt.Errorf("rank %d's key is not a WireGuard key: %w", p.Rank, err)
	}
	return k, nil
}
