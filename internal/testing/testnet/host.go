package testnet

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// Host is a machine.
type Host struct {
	Name  string
	net   *Net
	space *space
	links int
}

// Host creates a machine without a network.
func (n *Net) Host(name string) *Host {
	n.t.Helper()
	s, err := newSpace(n.dir, name)
	if err != nil {
		n.t.Fatal("testnet:", err)
	}
	h := &Host{Name: name, net: n, space: s}
	n.mu.Lock()
	known := n.hosts[name]
	n.hosts[name] = h
	n.mu.Unlock()
	n.t.Cleanup(h.End)
	if known != nil {
		n.t.Fatalf("testnet: there are two hosts %s", name)
	}
	return h
}

// End powers the machine off at once. Its disk stays until the net ends.
func (h *Host) End() { h.space.end() }

// Dir returns the host's folder on the disk, which has the same path outside of the host.
func (h *Host) Dir() string {
	h.net.t.Helper()
	dir := filepath.Join(h.net.dir, h.Name)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		h.net.t.Fatal("testnet:", err)
	}
	return dir
}

// Join connects the host to a segment with addresses such as "192.168.1.10/24" or "fd01::10/64", and returns the link.
// The first is eth0, the next eth1.
func (h *Host) Join(s *Segment, addresses ...string) *Link {
	h.net.t.Helper()
	name := "eth" + strconv.Itoa(h.links)
	h.links++
	l, err := h.join(s, name, addresses)
	if err != nil {
		h.net.t.Fatalf("testnet: join %s to a segment: %v", h.Name, err)
	}
	return l
}

func (h *Host) join(s *Segment, name string, addresses []string) (*Link, error) {
	l, err := newLink(h, s, name)
	if err != nil {
		return nil, err
	}
	return l, h.space.inside(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		// A duplicate address would be a mistake in the test: skip its detection, which takes time.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0o644)
		for _, a := range addresses {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if addr.IP.To4() == nil {
				addr.Flags = 0x02 // IFA_F_NODAD
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	})
}

// Route routes a destination ("default", or a prefix) through a gateway.
func (h *Host) Route(destination, gateway string) {
	h.net.t.Helper()
	family := "-4"
	if strings.Contains(gateway, ":") {
		family = "-6"
	}
	h.Run("ip", family, "route", "replace", destination, "via", gateway)
}

// Run runs a command on the host and returns its output. A failure fails the test.
func (h *Host) Run(name string, args ...string) string {
	h.net.t.Helper()
	out, err := h.Command(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		h.net.t.Fatalf("%s: %s %s: %v\n%s", h.Name, name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Command returns a command that runs on the host: in its networks and among its processes, with this machine's files.
// If ctx ends or its starter is killed, the command is killed.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	// nsenter waits outside for the command inside, which dies with it.
	argv := append([]string{"--target", strconv.Itoa(h.space.pid), "--net", "--pid", "--mount", "--uts", "--ipc", "--",
		"setpriv", "--pdeathsig", "KILL", name}, args...)
	return exec.CommandContext(ctx, "nsenter", argv...)
}

// Listen opens a TCP listener of this process at one of the host's addresses.
func (h *Host) Listen(address string) net.Listener {
	h.net.t.Helper()
	var l net.Listener
	err := h.space.inside(func() (err error) { l, err = net.Listen("tcp", address); return err })
	if err != nil {
		h.net.t.Fatalf("testnet: %s: %v", h.Name, err)
	}
	h.net.t.Cleanup(func() { l.Close() })
	return l
}

// ListenPacket opens a UDP socket of this process at one of the host's addresses.
func (h *Host) ListenPacket(address string) net.PacketConn {
	h.net.t.Helper()
	var c net.PacketConn
	err := h.space.inside(func() (err error) { c, err = net.ListenPacket("udp", address); return err })
	if err != nil {
		h.net.t.Fatalf("testnet: %s: %v", h.Name, err)
	}
	h.net.t.Cleanup(func() { c.Close() })
	return c
}

// Dial connects this process from the host to an address, which must be literal.
func (h *Host) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	err = h.space.inside(func() (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// NetNS returns a path to the host's network namespace, valid outside while the host exists.
func (h *Host) NetNS() string { return fmt.Sprintf("/proc/%d/ns/net", h.space.pid) }

// Inside runs f in the host's network; see agent/net/netns for what f may do.
func (h *Host) Inside(f func() error) error { return h.space.inside(f) }

// Publish makes a TCP address on this machine's loopback reachable at one of the host's addresses, so that the servers
// of a test can be reached from inside its net.
func (h *Host) Publish(address, target string) {
	h.net.t.Helper()
	serve(h.Listen(address), func() (net.Conn, error) { return net.Dial("tcp", target) })
}

// Processes lists the host's processes whose command line contains a text, by this machine's process ids.
func (h *Host) Processes(text string) []int {
	ns := func(pid int) string { l, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); return l }
	own := ns(h.space.pid)
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var out []int
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil || pid == h.space.pid || ns(pid) != own {
			continue
		}
		line, err := os.ReadFile(f)
		if err == nil && bytes.Contains(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), []byte(text)) {
			out = append(out, pid)
		}
	}
	return out
}
