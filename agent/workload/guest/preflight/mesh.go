package preflight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/workload/guest"
)

// The lower rank makes the connection that both use (pair), and each rank connects to the next one for the ring. A
// connection opens with a greeting: its purpose, the lease's epoch, and the caller's rank.
type purpose byte

const (
	forPair purpose = 'p'
	forRing purpose = 'r'
)

var magic = [4]byte{'M', 'S', 'T', '1'}

type greeting struct {
	Magic   [4]byte
	Purpose purpose
	Epoch   int64
	Rank    int32
}

// mesh is all of a rank's connections.
type mesh struct {
	q    guest.PreflightRequest
	pair []net.Conn // by rank; nil for its own
	ring *ring
	fast float64     // see fastLine
	stop func() bool // releases the context

	mu        sync.Mutex   // guards ring.more and morePairs, which are set while stop may look at them
	morePairs [][]net.Conn // further connections, by rank; see widen
}

// silent lists the ranks without a connection.
func (m *mesh) silent() []int {
	n := len(m.q.Addresses)
	var out []int
	for rank, c := range m.pair {
		missing := rank != m.q.Rank && c == nil
		missing = missing || rank == (m.q.Rank+1)%n && m.ring.next == nil || rank == (m.q.Rank+n-1)%n && m.ring.prev == nil
		if missing {
			out = append(out, rank)
		}
	}
	return out
}

func doNotAnswer(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d does not answer", ranks[0])
	}
	texts := make([]string, len(ranks))
	for i, r := range ranks {
		texts[i] = strconv.Itoa(r)
	}
	return "ranks " + strings.Join(texts[:len(texts)-1], ", ") + " and " + texts[len(texts)-1] + " do not answer"
}

// awaitCall waits until a rank of this cluster and epoch calls, and closes the connection: the rank calls again, and
// the next measurement accepts it.
func awaitCall(ctx context.Context, q guest.PreflightRequest) error {
	lc := net.ListenConfig{}
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort(q.Addresses[q.Rank], strconv.Itoa(Port)))
	if err != nil {
		return fmt.Errorf("listen on the overlay: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		_, err = readGreeting(c, q)
		c.Close()
		if err == nil {
			return nil
		}
	}
}

// keepAlive soon detects that the other end is a different guest, which does not know the connection, and tolerates
// short network outages.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: 2 * time.Second, Count: 60}

// greeted reads and answers a caller's greeting.
func greeted(c net.Conn, q guest.PreflightRequest) (greeting, error) {
	g, err := readGreeting(c, q)
	if err == nil {
		_, err = c.Write([]byte{'k'})
	}
	return g, err
}

// readGreeting reads a caller's greeting and verifies the caller's address.
func readGreeting(c net.Conn, q guest.PreflightRequest) (g greeting, err error) {
	c.SetDeadline(time.Now().Add(2 * time.Second))
	defer c.SetDeadline(time.Time{})
	if err := binary.Read(c, binary.BigEndian, &g); err != nil {
		return g, err
	}
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	switch {
	case err != nil:
		return g, err
	case g.Magic != magic || g.Epoch != int64(q.Epoch) || int(g.Rank) >= len(q.Addresses) || g.Rank < 0 ||
		int(g.Rank) == q.Rank:
		return g, errors.New("not of this cluster's epoch")
	case q.Addresses[g.Rank] != host:
		return g, fmt.Errorf("%s is not rank %d", host, g.Rank)
	case g.Purpose != forPair && g.Purpose != forRing:
		return g, errors.New("unknown purpose")
	}
	return g, nil
}

func callOnce(ctx context.Context, q guest.PreflightRequest, p purpose, rank int,
	timeout time.Duration) (net.Conn, error) {
	return greet(ctx, q, rank, timeout, greeting{magic, p, int64(q.Epoch), int32(q.Rank)})
}

// greet connects to a rank's port from this rank's address, sends a greeting of fixed size, and waits for the answer.
func greet(ctx context.Context, q guest.PreflightRequest, rank int, timeout time.Duration,
	greeting any) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: keepAlive,
		LocalAddr:       &net.TCPAddr{IP: net.ParseIP(q.Addresses[q.Rank])},
	}
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort(q.Addresses[rank], strconv.Itoa(Port)))
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(10 * time.Second)) // it has accepted us: a slow reply is better than a second call
	err = binary.Write(c, binary.BigEndian, greeting)
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.SetDeadline(time.Time{})
	return c, nil
}

func (m *mesh) each(f func(net.Conn)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Concat(m.pair, []net.Conn{m.ring.next, m.ring.prev})
	for _, l := range m.ring.more {
		all = append(all, l.next, l.prev)
	}
	for _, c := range append(all, slices.Concat(m.morePairs...)...) {
		if c != nil {
			f(c)
		}
	}
}

func (m *mesh) close() {
	m.stop()
	m.each(func(c net.Conn) { c.Close() })
}
