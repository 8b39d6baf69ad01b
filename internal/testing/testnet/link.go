package testnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link connects a host to a segment: a pair of virtual Ethernet ends, as fast as this machine. While it has a fault,
// this process carries its frames one by one, so cutting, delaying and losing frames needs no support of the kernel, at
// the cost of speed.
type Link struct {
	net   *Net
	far   string // the segment's end of the pair
	port  string // the segment's bridge
	proxy *proxy // created with the first fault

	mu    sync.Mutex
	fault Fault
	lost  int
}

// Fault is what a link does to frames, in both directions. The zero Fault is a link without faults.
type Fault struct {
	Cut   bool
	Delay time.Duration // one way
	Loss  float64       // fraction of frames that are lost, 0 to 1
}

// Set changes what the link does from now on. Frames in transit arrive as they would have, except that frames which a
// delay holds back are lost when the link loses its faults.
func (l *Link) Set(f Fault) {
	t := l.net.t
	t.Helper()
	if l.proxy == nil && f != (Fault{}) {
		p, err := newProxy(l)
		if err != nil {
			t.Fatal("testnet: make a link fail:", err)
		}
		l.proxy = p
	}
	l.mu.Lock()
	was := l.fault
	l.fault = f
	l.mu.Unlock()
	if good := f == (Fault{}); good != (was == Fault{}) {
		if err := l.detour(!good); err != nil {
			t.Fatal("testnet: set a link's fault:", err)
		}
	}
}

// detour routes the link through the proxy, or directly to its segment. A port that leaves a bridge takes along what
// the bridge has learned about it.
func (l *Link) detour(through bool) error {
	return l.net.fabric.inside(func() error {
		if !through {
			return errors.Join(setMaster(l.proxy.outer, ""), setMaster(l.far, l.port))
		}
		return errors.Join(setMaster(l.far, l.proxy.bridge), setMaster(l.proxy.outer, l.port))
	})
}

// Lost returns how many frames the link has dropped.
func (l *Link) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// newLink creates the link: its near end belongs to the host and has the name.
func newLink(h *Host, s *Segment, name string) (*Link, error) {
	l := &Link{net: h.net, far: h.net.name("port"), port: s.bridge}
	near := h.net.name("near")
	err := h.net.fabric.inside(func() error {
		pair := &netlink.Veth{LinkAttrs: named(l.far), PeerName: near}
		pair.MTU, pair.PeerMTU = s.mtu, uint32(s.mtu)
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		end, err := netlink.LinkByName(near)
		if err == nil {
			err = netlink.LinkSetNsFd(end, int(h.space.net.Fd()))
		}
		if err == nil {
			err = setMaster(l.far, l.port)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, h.space.inside(func() error {
		end, err := netlink.LinkByName(near)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(end, name)
	})
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// setMaster makes a device a port of a bridge and brings it up; "" removes it from any bridge. It runs inside the
// fabric.
func setMaster(device, bridge string) error {
	d, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if bridge == "" {
		return netlink.LinkSetNoMaster(d)
	}
	b, err := netlink.LinkByName(bridge)
	if err == nil {
		err = netlink.LinkSetMaster(d, b)
	}
	if err == nil {
		err = netlink.LinkSetUp(d)
	}
	return err
}

// proxy carries a link's frames between a bridge of the link's own and its segment.
type proxy struct {
	bridge      string
	outer       string // the end that joins the segment
	inner, outs *os.File
}

func newProxy(l *Link) (*proxy, error) {
	p := &proxy{bridge: l.net.name("br"), outer: l.net.name("tap")}
	inner := l.net.name("tap")
	err := l.net.fabric.inside(func() (err error) {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: named(p.bridge)}); err != nil {
			return err
		}
		b, err := netlink.LinkByName(p.bridge)
		if err == nil {
			err = netlink.LinkSetUp(b)
		}
		if err == nil {
			p.inner, err = openTAP(inner)
		}
		if err == nil {
			p.outs, err = openTAP(p.outer)
		}
		if err == nil {
			err = setMaster(inner, p.bridge)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var carry sync.WaitGroup
	carry.Go(func() { l.carry(p.inner, p.outs) })
	carry.Go(func() { l.carry(p.outs, p.inner) })
	l.net.t.Cleanup(func() {
		p.inner.Close()
		p.outs.Close()
		carry.Wait()
	})
	return p, nil
}

func openTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the link %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

const frameSize = 1 << 16

// carry moves frames from one end to the other until either ends.
func (l *Link) carry(from, to *os.File) {
	late := newQueue(to)
	defer late.end()
	buf := make([]byte, frameSize)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		l.mu.Lock()
		f := l.fault
		swallow := f.Cut || f.Loss > 0 && rand.Float64() < f.Loss
		if swallow {
			l.lost++
		}
		l.mu.Unlock()
		switch {
		case swallow:
		case f.Delay > 0 || late.busy(): // frames stay in order
			late.add(append([]byte(nil), buf[:n]...), time.Now().Add(f.Delay))
		default:
			_, _ = to.Write(buf[:n]) // like a real end, one that is down accepts nothing
		}
	}
}

// queue holds delayed frames in order.
type queue struct {
	mu     sync.Mutex
	frames []delayed
	wake   chan struct{}
	done   chan struct{}
	worker sync.WaitGroup
}

type delayed struct {
	frame []byte
	due   time.Time
}

// queueLength limits the frames in transit, like the buffer of a real line.
const queueLength = 1 << 14

func newQueue(to *os.File) *queue {
	q := &queue{wake: make(chan struct{}, 1), done: make(chan struct{})}
	q.worker.Go(func() { q.deliver(to) })
	return q
}

func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.frames) > 0
}

func (q *queue) add(frame []byte, due time.Time) {
	q.mu.Lock()
	if len(q.frames) < queueLength {
		q.frames = append(q.frames, delayed{frame, due})
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) deliver(to *os.File) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		q.mu.Lock()
		wait := time.Hour
		for len(q.frames) > 0 {
			if wait = time.Until(q.frames[0].due); wait > 0 {
				break
			}
			_, _ = to.Write(q.frames[0].frame)
			q.frames, wait = q.frames[1:], time.Hour
		}
		q.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		case <-q.done:
			return
		}
	}
}

func (q *queue) end() {
	close(q.done)
	q.worker.Wait()
}
