package overlay

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// The kernel's counters are added once, across restarts of the process that reads them and peers that are added again.
// Those of peers in the host's own networks do not count for its line.
func TestTheKernelsCountersAreSummed(t *testing.T) {
	t.Parallel()
	near, far := newKey(t).PublicKey(), newKey(t).PublicKey()
	dir := t.TempDir()
	f := &fakeWireGuard{}
	show := func(nearRx, nearTx, farRx, farTx int64) {
		f.device.Peers = []wgtypes.Peer{
			{
				PublicKey:     near,
				ReceiveBytes:  nearRx,
				TransmitBytes: nearTx,
				Endpoint:      &net.UDPAddr{IP: net.IPv4(198, 51, 100, 7), Port: 1},
			},
			{
				PublicKey:     far,
				ReceiveBytes:  farRx,
				TransmitBytes: farTx,
				Endpoint:      &net.UDPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 1},
			},
		}
	}
	var k *kernel
	var b *usageFile
	process := func(deviceLives bool) {
		b = &usageFile{}
		was := b.open(dir)
		k = newKernel(func(do func(control) error) error { return do(f) })
		if deviceLives {
			k.meter.resume(was.Read)
		}
		k.near([]netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")})
	}
	look := func() {
		t.Helper()
		if _, err := k.counters(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, up, down, sent, received int64) {
		t.Helper()
		look()
		if err := b.note(k); err != nil {
			t.Fatal(err)
		}
		if got, err := readTally(dir); err != nil || got.Sum != (Traffic{
			Up:       up,
			Down:     down,
			Sent:     sent,
			Received: received,
		}) {
			t.Errorf("%s: %+v, %v", what, got.Sum, err)
		}
	}
	process(false)
	show(100, 50, 1000, 500)
	look()
	want("looked at twice", 500, 1000, 550, 1100)
	show(100, 50, 1500, 600)
	process(true) // killed; the device went on
	want("by the next process", 600, 1500, 650, 1600)
	show(100, 50, 10, 5)
	want("a peer was added again", 605, 1510, 655, 1610)
	show(7, 0, 0, 0)
	process(false) // the guest is another, and so is its device
	want("with another device", 605, 1510, 655, 1617)
	if err := os.WriteFile(filepath.Join(dir, trafficFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTally(dir); err == nil {
		t.Error("a damaged file was read")
	}
	process(false)
	want("after damage", 0, 0, 0, 7)
}
