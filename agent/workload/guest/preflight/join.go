package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/workload/guest"
)

// joining is a mesh whose connections are being made. Ranks come up at different times, and some restart: a connection
// whose other end has gone is closed and made again, until all of them are established at the same time. If a broken
// connection were kept it would break the measurement of all ranks, of each at another time, again and again.
type joining struct {
	*mesh
	mu    sync.Mutex
	over  bool          // the mesh is complete: later connections are refused
	met   map[int]bool  // ranks that are or were connected
	moved chan struct{} // signals a new connection
}

// lookEvery is how often the connections are checked.
const lookEvery = 50 * time.Millisecond

// join connects to every other rank, or names the ranks that did not answer.
func join(ctx context.Context, q guest.PreflightRequest) (*mesh, error) {
	n := len(q.Addresses)
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort(q.Addresses[q.Rank], strconv.Itoa(Port)))
	if err != nil {
		return nil, fmt.Errorf("listen on the overlay: %w", err)
	}
	defer l.Close()
	joinCtx, cancel := context.WithTimeout(ctx, time.Duration(q.JoinMS)*time.Millisecond)
	defer cancel()

	j := &joining{
		mesh:  &mesh{q: q, pair: make([]net.Conn, n), ring: &ring{rank: q.Rank, n: n}, fast: fastLine},
		met:   map[int]bool{},
		moved: make(chan struct{}, 1),
	}
	go j.accept(l)
	for rank := q.Rank + 1; rank < n; rank++ {
		go j.keepCalling(joinCtx, forPair, rank)
	}
	go j.keepCalling(joinCtx, forRing, (q.Rank+1)%n)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for !j.whole() {
		select {
		case <-j.moved:
		case <-look.C:
		case <-joinCtx.Done():
			silent := j.giveUp()
			return nil, errors.New(doNotAnswer(silent))
		}
	}
	m := j.mesh
	m.stop = context.AfterFunc(ctx, func() { m.each(func(c net.Conn) { c.SetDeadline(time.Unix(1, 0)) }) })
	return m, nil
}

// whole closes broken connections and reports whether all are established, after which nothing changes any more.
func (j *joining) whole() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, slot := range j.slots() {
		if *slot != nil && !established(*slot) {
			(*slot).Close()
			*slot = nil
		}
	}
	j.over = len(j.silent()) == 0
	return j.over
}

// giveUp closes all connections and names the missing ranks. If some ranks were never connected it names only those:
// the others wait for them, too, and no longer than this rank does.
func (j *joining) giveUp() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	silent := j.silent()
	if never := slices.DeleteFunc(slices.Clone(silent), func(r int) bool { return j.met[r] }); len(never) > 0 {
		silent = never
	}
	j.each(func(c net.Conn) { c.Close() })
	return silent
}

func (j *joining) slots() []*net.Conn {
	out := []*net.Conn{&j.ring.next, &j.ring.prev}
	for rank := range j.pair {
		out = append(out, &j.pair[rank])
	}
	return out
}

func (j *joining) slot(p purpose, rank int, called bool) *net.Conn {
	switch {
	case p == forPair:
		return &j.pair[rank]
	case called:
		return &j.ring.next
	}
	return &j.ring.prev
}

// take stores a connection, replacing an earlier attempt whose reply was lost.
func (j *joining) take(p purpose, rank int, called bool, c net.Conn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		c.Close()
		return
	}
	slot := j.slot(p, rank, called)
	if *slot != nil {
		(*slot).Close()
	}
	*slot, j.met[rank] = c, true
	select {
	case j.moved <- struct{}{}:
	default:
	}
}

// accept accepts calls until the listener is closed.
func (j *joining) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		g, err := greeted(c, j.q)
		if err != nil {
			c.Close() // a stranger, or an earlier epoch: the right rank will call again
			continue
		}
		j.take(g.Purpose, int(g.Rank), false, c)
	}
}

// keepCalling connects to a rank, and again when the connection breaks, until ctx ends.
func (j *joining) keepCalling(ctx context.Context, p purpose, rank int) {
	for ctx.Err() == nil {
		j.mu.Lock()
		there := *j.slot(p, rank, true) != nil
		j.mu.Unlock()
		if !there {
			if c := call(ctx, j.q, p, rank); c != nil {
				j.take(p, rank, true, c)
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// call connects to a rank, retrying until it answers; it returns nil if ctx ends first.
func call(ctx context.Context, q guest.PreflightRequest, p purpose, rank int) net.Conn {
	wait := 10 * time.Millisecond
	// A SYN into a tunnel that is still being set up is lost, and TCP alone would retry only after a second.
	timeout := 200 * time.Millisecond
	for {
		c, err := callOnce(ctx, q, p, rank, timeout)
		if err == nil {
			return c
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait, timeout = min(2*wait, 250*time.Millisecond), min(2*timeout, 5*time.Second)
	}
}

// established reports whether the other end has neither closed nor reset a connection, whatever it sent before.
func established(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return true
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	up := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		up = err != nil || info.State == unix.BPF_TCP_ESTABLISHED
	})
	return err == nil && up
}
