package overlay

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/agent/net/overlay/paths"
	"github.com/musterhq/muster/internal/agentapi"
)

// userspace is WireGuard in this process over a TUN device in the guest's namespace. The TUN device is persistent: it,
// its address and its routes outlive the process, and so do TCP connections.
type userspace struct {
	dev   *device.Device
	board *paths.Board
	udp   int
}

func openUserspace(w where) (*userspace, error) {
	var fd int
	err := netns.Inside(w.ns, func() (err error) {
		if err := sealOff(w.cidr); err != nil {
			return err
		}
		if link, err := netlink.LinkByName(Interface); err == nil && link.Type() == "wireguard" {
			if err := netlink.LinkDel(link); err != nil { // the overlay was the kernel's
				return err
			}
		}
		if fd, err = openTUN(); err != nil {
			return err
		}
		if err := bringUp(w.address, w.mtu); err != nil {
			return err
		}
		makeFindable(w)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, fmt.Errorf("take up the TUN device: %w", err)
	}
	log := &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf:   func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	}
	sized := newSizedTUN(t, w.ns, w.mtu)
	u := &userspace{board: paths.New(w.key, w.near, sized.resize)}
	u.dev = device.NewDevice(sized, u.board, log)
	if err := u.start(w); err != nil {
		u.dev.Close()
		return nil, err
	}
	return u, nil
}

// openTUN attaches to the persistent ovl0 in the thread's namespace, and creates it if it does not exist.
func openTUN() (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(Interface)
	if err == nil {
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = whileDying(unix.EBUSY, func() error { return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr) })
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	}
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("make the TUN device %s: %w", Interface, err)
	}
	return fd, nil
}

// whileDying repeats f for a moment while it fails with busy: a killed process releases its lock, its device and its
// port one after the other.
func whileDying(busy unix.Errno, f func() error) error {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if !errors.Is(err, busy) || time.Now().After(deadline) {
			return err
		}
	}
}

// start sets the key and binds UDP in the host's namespace, where this process runs. If the port is taken it uses any
// other: peers learn the new port from our first packet.
func (u *userspace) start(w where) error {
	set := func(port int) error {
		return u.dev.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\n", hex.EncodeToString(w.key[:]), port))
	}
	if err := set(w.port); err != nil {
		return fmt.Errorf("set the overlay's key: %w", err)
	}
	err := whileDying(unix.EADDRINUSE, u.dev.Up)
	if err != nil && w.port != 0 && errors.Is(err, unix.EADDRINUSE) {
		if err = set(0); err == nil {
			err = u.dev.Up()
		}
	}
	if err != nil {
		return fmt.Errorf("bind the overlay's UDP port: %w", err)
	}
	return u.get(func(k, v string) (err error) {
		if k == "listen_port" {
			u.udp, err = strconv.Atoi(v)
		}
		return err
	})
}

func (u *userspace) close() {
	u.dev.Close() // the TUN device is persistent
}

func (u *userspace) backend() string       { return "userspace" }
func (u *userspace) port() int             { return u.udp }
func (u *userspace) done() <-chan struct{} { return u.dev.Wait() }

func (u *userspace) meet(peers map[wgtypes.Key]*agentapi.Peer) error {
	for key, p := range peers {
		if p == nil {
			u.board.Forget(key)
			continue
		}
		at := make([]netip.AddrPort, 0, len(p.Endpoints))
		for _, e := range p.Endpoints {
			a, err := netip.ParseAddrPort(e)
			if err != nil {
				return err
			}
			at = append(at, a)
		}
		if err := u.board.SetPeer(key, p.Rank, at); err != nil {
			return err
		}
	}
	return nil
}

func (u *userspace) relays(names []string, token string) error {
	return u.board.SetRelays(names, token)
}
func (u *userspace) paths() map[wgtypes.Key]paths.Path { return u.board.Paths() }

func (u *userspace) apply(changes []peerChange) error {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "public_key=%s\n", hex.EncodeToString(c.key[:]))
		if c.remove {
			b.WriteString("remove=true\n")
			continue
		}
		fmt.Fprintf(&b, "endpoint=%s\n", paths.Endpoint(c.key)) // the board knows the address
		if c.address.IsValid() {
			fmt.Fprintf(&b, "replace_allowed_ips=true\nallowed_ip=%s\n", c.address)
		}
		if c.keepalive {
			fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", int(keepalive.Seconds()))
		}
	}
	if err := u.dev.IpcSet(b.String()); err != nil {
		return fmt.Errorf("set the overlay's peers: %w", err)
	}
	return nil
}

func (u *userspace) beat(keys []wgtypes.Key) error {
	for _, k := range keys {
		if p := u.dev.LookupPeer(device.NoisePublicKey(k)); p != nil {
			p.SendKeepalive()
		}
	}
	return nil
}

func (u *userspace) counters() (map[wgtypes.Key]counter, error) {
	out := map[wgtypes.Key]counter{}
	var key wgtypes.Key
	var secs int64
	err := u.get(func(k, v string) (err error) {
		c := out[key]
		switch k {
		case "public_key":
			var raw []byte
			if raw, err = hex.DecodeString(v); err == nil {
				key, err = wgtypes.NewKey(raw)
				c = counter{}
			}
		case "endpoint":
			c.endpoint = v
		case "rx_bytes":
			c.rx, err = strconv.ParseInt(v, 10, 64)
		case "tx_bytes":
			c.tx, err = strconv.ParseInt(v, 10, 64)
		case "last_handshake_time_sec":
			secs, err = strconv.ParseInt(v, 10, 64)
		case "last_handshake_time_nsec":
			var ns int64
			if ns, err = strconv.ParseInt(v, 10, 64); secs+ns > 0 {
				c.handshake = time.Unix(secs, ns)
			}
		default:
			return nil
		}
		if key != (wgtypes.Key{}) {
			out[key] = c
		}
		return err
	})
	return out, err
}

func (u *userspace) near(nets []netip.Prefix) { u.board.Line().Near(nets) }
func (u *userspace) tally() tally             { return tally{Sum: u.board.Line().Sum()} }

func (u *userspace) get(each func(key, value string) error) error {
	text, err := u.dev.IpcGet()
	if err != nil {
		return fmt.Errorf("ask the overlay's device: %w", err)
	}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		k, v, _ := strings.Cut(s.Text(), "=")
		if err := each(k, v); err != nil {
			return fmt.Errorf("read %s of the overlay's device: %w", k, err)
		}
	}
	return nil
}
