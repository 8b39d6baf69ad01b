package hostlink

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/metrics"
)

const (
	// admissionWait is how long a connection waits for its TLS handshake. The agent waits connectTimeout (20 s) until it
	// is connected; after the handshake its authorisation may take maxBacklog.
	admissionWait = 8 * time.Second
	// maxAdmissions limits the memory of waiting connections, about 30 kB each.
	maxAdmissions = 4096
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
type admission struct {
	now func() time.Time
	// busy reports whether enoughWork waits, of what hosts send when they connect.
	busy   func() bool
	closed chan struct{}
	close  func() // refuses the connections that wait

	mu       sync.Mutex
	open     bool            // connections can be authorised
	waiting  []chan struct{} // closed when the connection is admitted; oldest first
	admitted []time.Time     // connections that were admitted and have not asked for authorisation yet; oldest first
	last     time.Time       // when the last one was admitted
	serving  bool            // serve runs
}

func newAdmission(now func() time.Time, busy func() bool) *admission {
	a := &admission{now: now, busy: busy, closed: make(chan struct{})}
	a.close = sync.OnceFunc(func() { close(a.closed) })
	return a
}

// start begins to admit connections.
func (a *admission) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = true
}

// wait returns nil when the connection may go on with its handshake, and an error if it must come again later.
func (a *admission) wait(ctx context.Context) error {
	a.mu.Lock()
	if len(a.waiting) == 0 && a.free() {
		a.admit()
		a.mu.Unlock()
		return nil
	}
	if len(a.waiting) >= maxAdmissions {
		a.mu.Unlock()
		metrics.HostMessage("handshake", "refused")
		return errBusy
	}
	turn := make(chan struct{})
	if a.waiting = append(a.waiting, turn); !a.serving {
		a.serving = true
		go a.serve()
	}
	a.mu.Unlock()
	patience := time.NewTimer(admissionWait)
	defer patience.Stop()
	select {
	case <-turn:
		return nil
	case <-patience.C:
	case <-a.closed:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.waiting, turn)
	if i < 0 {
		return nil // admitted meanwhile
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	metrics.HostMessage("handshake", "refused")
	return errBusy
}

// serve admits the waiting connections, and returns when none waits.
func (a *admission) serve() {
	tick := time.NewTicker(admissionTick)
	defer tick.Stop()
	for range tick.C {
		a.mu.Lock()
		for len(a.waiting) > 0 && a.free() {
			close(a.waiting[0])
			a.waiting[0] = nil // for the garbage collector
			a.waiting = a.waiting[1:]
			a.admit()
		}
		done := len(a.waiting) == 0
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
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return nil, a.wait(hello.Context()) }
}
