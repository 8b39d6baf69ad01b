package hostlink

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/internal/metrics"
)

const (
	// admissionWait is how long a connection waits for its TLS handshake. The agent waits connectTimeout (60 s) until it
	// is connected; after the handshake its authorisation may take authTimeout. Agents of earlier versions leave after 20
	// or 5 s.
	admissionWait = 40 * time.Second
	// maxAdmissions limits the memory of waiting connections, about 30 kB each.
	maxAdmissions = 16_384
	// enoughHandshakes and enoughWork are how much keeps a replica busy: connections between the beginning of their
	// handshake and their authorisation, and work that waits in a queue.
	enoughHandshakes = 32
	enoughWork       = maxBacklog / 4
	// admissionPace is how often connections are admitted even if there is enough work.
	admissionPace = 50 * time.Millisecond
	// admissionTick is how often it is checked whether there is enough work, while connections wait.
	admissionTick = 2 * time.Millisecond
	// handshakeFor is how long an admitted connection counts as one that will ask for its authorisation.
	handshakeFor = 3 * time.Second
)

// admission lets connections wait before their TLS handshake, the first costly step, until the replica has finished
// enough of the work of those before them. When a fleet arrives at once, the replica is neither overloaded nor idle,
// and few hosts are refused: one that is refused comes back only after seconds, and its handshake was in vain. Until
// start all wait.
//
// The sources of connections take turns, and within one the order is that of arrival. When all places are taken, the
// newest of the source with the most waiting connections makes room for a new one of another source. So a flood from
// one address neither keeps others out nor delays them by more than one turn each.
type admission struct {
	places int // how many connections may wait
	now    func() time.Time
	// busy reports whether enoughWork waits, of what hosts send when they connect.
	busy   func() bool
	closed chan struct{}
	close  func() // refuses the connections that wait, and those that still come

	mu       sync.Mutex
	open     bool                       // connections can be authorised
	waiting  int                        // connections
	sources  map[netip.Prefix][]*waiter // those of each source, oldest first; none is empty
	turns    []netip.Prefix             // the sources, in the order of their turns
	admitted []time.Time                // when those were admitted that have not asked for authorisation; oldest first
	last     time.Time                  // when the last one was admitted
	serving  bool                       // serve runs
}

// waiter is a connection that waits.
type waiter struct {
	conn   net.Conn
	source netip.Prefix
	turn   chan error // nil: the connection is admitted; has room for one
}

func newAdmission(places int, now func() time.Time, busy func() bool) *admission {
	a := &admission{places: places, now: now, busy: busy, closed: make(chan struct{}),
		sources: map[netip.Prefix][]*waiter{}}
	a.close = sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open = false
		close(a.closed)
	})
	return a
}

// start begins to admit connections.
func (a *admission) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = true
}

// wait returns nil when the connection may go on with its handshake, and an error if it must come again later.
func (a *admission) wait(ctx context.Context, conn net.Conn) error {
	w := &waiter{conn, sourceOf(conn.RemoteAddr()), make(chan error, 1)}
	a.mu.Lock()
	if a.waiting == 0 && a.free() {
		a.admit()
		a.mu.Unlock()
		return nil
	}
	if a.waiting >= a.places && !a.makeRoom(w.source) {
		a.mu.Unlock()
		metrics.HostMessage("handshake", "refused")
		return errBusy
	}
	if len(a.sources[w.source]) == 0 {
		a.turns = append(a.turns, w.source)
	}
	a.sources[w.source] = append(a.sources[w.source], w)
	a.waiting++
	if !a.serving {
		a.serving = true
		go a.serve()
	}
	a.mu.Unlock()
	patience := time.NewTimer(admissionWait)
	defer patience.Stop()
	select {
	case err := <-w.turn:
		return err
	case <-patience.C:
	case <-a.closed:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.sources[w.source], w); i >= 0 {
		a.refuse(w.source, i)
	}
	return <-w.turn
}

// makeRoom refuses the newest connection of the source of which most wait, unless it has no more than the given source
// would have. It reads all sources, which happens only while connections are refused anyway. Callers hold a.mu.
func (a *admission) makeRoom(source netip.Prefix) bool {
	most := slices.MaxFunc(a.turns, func(x, y netip.Prefix) int {
		return cmp.Compare(len(a.sources[x]), len(a.sources[y]))
	})
	n := len(a.sources[most])
	if n <= len(a.sources[source])+1 {
		return false
	}
	a.refuse(most, n-1)
	return true
}

// refuse refuses a waiting connection. Callers hold a.mu.
func (a *admission) refuse(source netip.Prefix, i int) {
	a.take(source, i).turn <- errBusy
	metrics.HostMessage("handshake", "refused")
}

// take removes a waiting connection. Callers hold a.mu.
func (a *admission) take(source netip.Prefix, i int) *waiter {
	w := a.sources[source][i]
	a.waiting--
	if left := slices.Delete(a.sources[source], i, i+1); len(left) > 0 {
		a.sources[source] = left
		return w
	}
	delete(a.sources, source)
	t := slices.Index(a.turns, source)
	a.turns = slices.Delete(a.turns, t, t+1)
	return w
}

// serve admits the waiting connections, and returns when none waits.
func (a *admission) serve() {
	tick := time.NewTicker(admissionTick)
	defer tick.Stop()
	for range tick.C {
		a.mu.Lock()
		for a.waiting > 0 && a.free() {
			source := a.turns[0]
			if gone(a.sources[source][0].conn) { // its handshake would be in vain, and others would wait for it
				a.refuse(source, 0)
				continue
			}
			w := a.take(source, 0)
			if len(a.sources[source]) > 0 {
				a.turns = append(a.turns[1:], source)
			}
			a.admit()
			w.turn <- nil
		}
		done := a.waiting == 0
		a.serving = !done
		a.mu.Unlock()
		if done {
			return
		}
	}
}

// admit notes that a connection goes on. Callers hold a.mu.
func (a *admission) admit() {
	a.last = a.now()
	a.admitted = append(a.admitted, a.last)
	metrics.HostMessage("handshake", "handled")
}

// free reports whether the next connection may go on. Callers hold a.mu.
func (a *admission) free() bool {
	now := a.now()
	for len(a.admitted) > 0 && now.Sub(a.admitted[0]) > handshakeFor {
		a.admitted = a.admitted[1:]
	}
	return a.open && (now.Sub(a.last) >= admissionPace ||
		len(a.admitted) < enoughHandshakes && !a.busy())
}

// arrived notes that a connection has asked for its authorisation.
func (a *admission) arrived() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.admitted) > 0 {
		a.admitted = a.admitted[1:]
	}
}

// config lets the connections of a TLS server wait.
func (a *admission) config(c *tls.Config) {
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		return nil, a.wait(hello.Context(), hello.Conn)
	}
}

// sourceOf returns where a connection comes from: an IPv4 address, or an IPv6 network of 64 bits, which is what one
// customer of a provider has at least. The zero prefix stands for what is neither.
func sourceOf(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // an address without a value gives the zero prefix
	return p
}

// gone reports whether the peer has closed a connection. It neither waits nor takes anything that the peer has sent.
func gone(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return err != nil || closed
}
