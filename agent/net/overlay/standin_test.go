package overlay

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/net/netns"
)

// fast is the argument with which this executable is an overlay process whose kernel has WireGuard: the machines that
// run these tests have none. In its place stands WireGuard's own userspace device with a plain socket, which speaks the
// same protocol, sends each peer's packets to one address and answers no probes, as the kernel's. It ends with its
// process, as the kernel's does not; that is tested in virtual machines only.
const fast = "overlay-fast"

// refusing is the same with a kernel that turns out to create no devices.
const refusing = "overlay-refusing"

func useStandIn(refuse bool) {
	wireGuard.there = func() bool { return true }
	wireGuard.make = standIn
	if refuse {
		wireGuard.make = func(where, bool) (func(func(control) error) error, func(), error) {
			return nil, nil, errors.New("refused")
		}
	}
}

func standIn(w where, _ bool) (func(func(control) error) error, func(), error) {
	var fd int
	if err := netns.Inside(w.ns, func() (err error) { fd, err = openTUN(); return err }); err != nil {
		return nil, nil, err
	}
	t, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, nil, err
	}
	log := &device.Logger{Verbosef: device.DiscardLogf, Errorf: func(f string, a ...any) {
		fmt.Fprintf(os.Stderr, f+"\n", a...)
	}}
	d := &userDevice{device.NewDevice(newSizedTUN(t, w.ns, 9000), conn.NewDefaultBind(), log)}
	return func(f func(control) error) error { return f(d) }, d.dev.Close, d.dev.Up()
}

// userDevice is a userspace device that is configured as the kernel's.
type userDevice struct{ dev *device.Device }

func (d *userDevice) ConfigureDevice(_ string, c wgtypes.Config) error {
	var b strings.Builder
	if c.PrivateKey != nil {
		fmt.Fprintf(&b, "private_key=%s\n", hex.EncodeToString(c.PrivateKey[:]))
	}
	if c.ListenPort != nil {
		fmt.Fprintf(&b, "listen_port=%d\n", *c.ListenPort)
	}
	for _, p := range c.Peers {
		fmt.Fprintf(&b, "public_key=%s\n", hex.EncodeToString(p.PublicKey[:]))
		if p.Remove {
			b.WriteString("remove=true\n")
			continue
		}
		if p.UpdateOnly {
			b.WriteString("update_only=true\n")
		}
		if p.Endpoint != nil {
			fmt.Fprintf(&b, "endpoint=%s\n", p.Endpoint)
		}
		if p.ReplaceAllowedIPs {
			b.WriteString("replace_allowed_ips=true\n")
		}
		for _, a := range p.AllowedIPs {
			fmt.Fprintf(&b, "allowed_ip=%s\n", a.String())
		}
		if p.PersistentKeepaliveInterval != nil {
			fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", int(p.PersistentKeepaliveInterval.Seconds()))
		}
	}
	return d.dev.IpcSet(b.String())
}

func (d *userDevice) Device(string) (*wgtypes.Device, error) {
	text, err := d.dev.IpcGet()
	if err != nil {
		return nil, err
	}
	out := &wgtypes.Device{}
	var secs int64
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		if key == "public_key" {
			raw, _ := hex.DecodeString(value)
			out.Peers = append(out.Peers, wgtypes.Peer{PublicKey: wgtypes.Key(raw)})
		}
		if key == "listen_port" {
			out.ListenPort = int(number)
		}
		if len(out.Peers) == 0 {
			continue
		}
		p := &out.Peers[len(out.Peers)-1]
		switch key {
		case "endpoint":
			if a, err := netip.ParseAddrPort(value); err == nil {
				p.Endpoint = net.UDPAddrFromAddrPort(a)
			}
		case "rx_bytes":
			p.ReceiveBytes = number
		case "tx_bytes":
			p.TransmitBytes = number
		case "last_handshake_time_sec":
			secs = number
		case "last_handshake_time_nsec":
			p.LastHandshakeTime = time.Unix(secs, number)
		}
	}
	return out, nil
}
