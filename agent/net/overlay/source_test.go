package overlay

import (
	"net"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
)

// Programs that look for their own address find the overlay's, by the source of the default route and by the list of
// addresses, whichever device the kernel lists first. What leaves the node has the source that the host knows. All of
// it outlives the overlay's device.
func TestProgramsFindTheOverlaysAddress(t *testing.T) {
	t.Parallel()
	for name, overlay := range map[string]int{"eth0 is listed first": 9, "the overlay is listed first": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, guest := newNamespace(t), newNamespace(t)
			device := func() {
				guest.ip(t, "link", "add", Interface, "index", strconv.Itoa(overlay), "type", "bridge")
			}
			wire(t, guest, "spare", "198.51.100.1/24", host, "other", "198.51.100.2/24")
			guest.ip(t, "link", "del", "spare") // so that eth0 is not the namespace's second device
			wire(t, guest, "eth0", "192.0.2.2/24", host, "port", "192.0.2.1/24")
			guest.ip(t, "route", "add", "default", "via", "192.0.2.1")
			server := host.listen(t, "192.0.2.1:0")
			_, cidr, _ := net.ParseCIDR("10.77.0.0/20")
			own := &net.IPNet{IP: net.IPv4(10, 77, 0, 2).To4(), Mask: cidr.Mask}
			for range 2 { // the second time, a new process takes over
				device()
				guest.do(t, func() error {
					if err := bringUp(own, DefaultMTU); err != nil {
						return err
					}
					return preferAddress(own, cidr)
				})
				if err := takeDown(guest.file); err != nil {
					t.Fatal(err)
				}
				if found := guest.source(t, "8.8.8.8:53"); !found.Equal(own.IP) {
					t.Errorf("without the device, programs find %s", found)
				}
			}
			device()
			guest.do(t, func() error { return bringUp(own, DefaultMTU) })
			if found := guest.source(t, "8.8.8.8:53"); !found.Equal(own.IP) {
				t.Errorf("programs find %s", found)
			}
			var listed []net.IP
			guest.do(t, func() error {
				all, err := netlink.AddrList(nil, netlink.FAMILY_V4)
				for _, a := range all {
					if a.Label != "lo" {
						listed = append(listed, a.IP)
					}
				}
				return err
			})
			if !listed[0].Equal(own.IP) {
				t.Errorf("the addresses are listed as %v", listed)
			}
			var c net.Conn
			guest.do(t, func() (err error) { c, err = net.Dial("tcp4", server.Addr().String()); return err })
			defer c.Close()
			in, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if from := in.RemoteAddr().(*net.TCPAddr).IP; !from.Equal(net.IPv4(192, 0, 2, 2)) {
				t.Errorf("the host sees packets of %s", from)
			}
		})
	}
}

// source returns the address that a program of the namespace would use to reach another.
func (n namespace) source(t *testing.T, to string) (ip net.IP) {
	t.Helper()
	n.do(t, func() error {
		c, err := net.Dial("udp4", to)
		if err != nil {
			return err
		}
		defer c.Close()
		ip = c.LocalAddr().(*net.UDPAddr).IP
		return nil
	})
	return ip
}
