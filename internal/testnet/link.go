package testnet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is a host's cable to a segment. It is carried by this process, frame by frame: what runs here needs no support
// of the kernel to be cut, slowed or made to lose.
type Link struct {
	near, far *os.File // the host's end, the segment's

	mu    sync.Mutex
	fault Fault
	lost  int
}

// Fault is what a link does to frames, in both directions. The zero Fault is a good link.
type Fault struct {
	Cut   bool
	Delay time.Duration // one way
	Loss  float64       // the part of frames that are lost, 0 to 1
}

// Set changes what the link does from now on. Frames under way come as they would have.
func (l *Link) Set(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
}

// Lost counts the frames the link has swallowed.
func (l *Link) Lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func newLink(h *Host, s *Segment, name string) (*Link, error) {
	l := &Link{}
	err := h.space.inside(func() (err error) { l.near, err = openTAP(name); return err })
	if err != nil {
		return nil, err
	}
	far := h.net.name("port")
	err = h.net.fabric.inside(func() (err error) {
		if l.far, err = openTAP(far); err != nil {
			return err
		}
		port, err := netlink.LinkByName(far)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName(s.bridge)
		if err == nil {
			err = netlink.LinkSetMaster(port, bridge)
		}
		if err == nil {
			err = netlink.LinkSetUp(port)
		}
		return err
	})
	if err != nil {
		l.near.Close()
		return nil, err
	}
	var carry sync.WaitGroup
	carry.Go(func() { l.carry(l.near, l.far) })
	carry.Go(func() { l.carry(l.far, l.near) })
	h.net.t.Cleanup(func() {
		l.near.Close()
		l.far.Close()
		carry.Wait()
	})
	return l, nil
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

// carry takes frames from one end to the other until either ends.
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
		case f.Delay > 0 || late.busy(): // a later frame does not overtake
			late.add(append([]byte(nil), buf[:n]...), time.Now().Add(f.Delay))
		default:
			_, _ = to.Write(buf[:n]) // an end that is down takes nothing, as a real one
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

// queueLength bounds what is under way, as a real line's buffer does.
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
