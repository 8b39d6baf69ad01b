package container

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/fault"
)

// Bridge returns the name of the agent's bridge on the machine and of its Docker network. Because the name is fixed, it
// acts as a lock: two networks cannot be created at once (Docker itself allows several with one name).
func (e *Engine) Bridge() string { return "mst" + Host8(e.cfg.Host) }

// EnsureNetwork creates the agent's bridge network if it is missing, and returns its id.
func (e *Engine) EnsureNetwork(ctx context.Context) (string, error) {
	taken, err := addressesInUse()
	if err != nil {
		return "", err
	}
	var last error
	for n := range pools {
		if id, err := e.findNetwork(ctx); id != "" || err != nil {
			return id, err
		}
		subnet := e.subnet(n)
		if e.cfg.Overlay.IsValid() && subnet.Overlaps(e.cfg.Overlay) || overlapsAny(subnet, taken) {
			continue
		}
		no := false
		res, err := e.docker.NetworkCreate(ctx, e.Bridge(), client.NetworkCreateOptions{
			Driver: "bridge", EnableIPv6: &no,
			IPAM: &network.IPAM{Driver: "default", Config: []network.IPAMConfig{{Subnet: subnet}}},
			Options: map[string]string{
				"com.docker.network.bridge.name":       e.Bridge(),
				"com.docker.network.bridge.enable_icc": "false",
			},
			Labels: map[string]string{labelHost: e.cfg.Host.String()},
		})
		if err == nil {
			return res.ID, nil
		}
		last = err
		if !cerrdefs.IsConflict(err) && !strings.Contains(err.Error(), "overlaps") &&
			!strings.Contains(err.Error(), e.Bridge()) {
			break
		}
	}
	if id, err := e.findNetwork(ctx); id != "" {
		return id, err
	}
	if last == nil {
		return "", fault.New(fault.Unavailable, "no free range of addresses for the bridge %s in 10.200.0.0/13", e.Bridge())
	}
	return "", unavailable(last, "make the network %s", e.Bridge())
}

// RemoveNetwork removes the agent's network. It is no error if there is none.
func (e *Engine) RemoveNetwork(ctx context.Context) error {
	id, err := e.findNetwork(ctx)
	if id == "" || err != nil {
		return err
	}
	if _, err := e.docker.NetworkRemove(ctx, id, client.NetworkRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
		return unavailable(err, "remove the network %s", e.Bridge())
	}
	return nil
}

func (e *Engine) findNetwork(ctx context.Context) (string, error) {
	list, err := e.docker.NetworkList(ctx, client.NetworkListOptions{Filters: e.mine()})
	if err != nil {
		return "", unavailable(err, "list networks")
	}
	for _, n := range list.Items {
		if n.Options["com.docker.network.bridge.name"] == e.Bridge() {
			return n.ID, nil
		}
	}
	return "", nil
}

// pools is how many ranges are tried before EnsureNetwork fails.
const pools = 64

// subnet returns the n-th range to try: a /24 of 10.200.0.0/13, beginning at one that depends on the agent.
func (e *Engine) subnet(n int) netip.Prefix {
	b, err := hex.DecodeString(Host8(e.cfg.Host))
	if err != nil {
		panic(err) // Host8 is always hex digits
	}
	at := (binary.BigEndian.Uint32(b) + uint32(n)) % (8 * 256)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200 + byte(at>>8), byte(at), 0}), 24)
}

func addressesInUse() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the machine does not report its addresses")
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}

func overlapsAny(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if p.Overlaps(o) {
			return true
		}
	}
	return false
}
