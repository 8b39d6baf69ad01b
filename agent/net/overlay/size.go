package overlay

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/musterhq/muster/agent/net/netns"
)

// sizedTUN answers for the MTU itself, because querying the device by name fails outside its namespace ("no such
// device"). The MTU follows what the paths to the peers carry.
type sizedTUN struct {
	tun.Device
	ns     *os.File
	mtu    atomic.Int64
	events chan tun.Event
}

func newSizedTUN(t tun.Device, ns *os.File, mtu int) *sizedTUN {
	s := &sizedTUN{Device: t, ns: ns, events: make(chan tun.Event, 8)}
	s.mtu.Store(int64(mtu))
	go func() {
		for e := range t.Events() {
			s.emit(e)
		}
	}()
	return s
}

func (s *sizedTUN) MTU() (int, error)        { return int(s.mtu.Load()), nil }
func (s *sizedTUN) Events() <-chan tun.Event { return s.events }

// emit passes an event on, unless nothing receives events any more.
func (s *sizedTUN) emit(e tun.Event) {
	select {
	case s.events <- e:
	default:
	}
}

// resize changes the device's MTU while it carries traffic; connections adapt by themselves.
func (s *sizedTUN) resize(mtu int) {
	err := netns.Inside(s.ns, func() error {
		link, err := netlink.LinkByName(Interface)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, mtu)
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "set %s's MTU to %d: %v\n", Interface, mtu, err)
		return
	}
	s.mtu.Store(int64(mtu))
	s.emit(tun.EventMTUUpdate)
}
