package preflight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// On a fast network one connection measures the speed of one processor core, and a few megabytes last a few
// milliseconds. So ranks of this version send more, over several connections at once, as NCCL does. Guests of older
// versions neither open these connections nor send as much. All ranks must measure alike, therefore they agree first,
// in the numbers that each round's start passes round the ring: in the first round a rank of this version sends
// scaling where an older one sends 0, and so knows its predecessor; in the second a rank with an older predecessor
// objects, which all see.
const scaling = 2

const (
	fastLine     = 1.0 // Gbit/s of the warm-up from which more is sent
	moreData     = 2   // times as much
	streamCount  = 4
	streamBuffer = 1 << 20 // of each connection's two buffers: a guest has 64 MB in total
	scaledRounds = 100
	pairTime     = 0.25 // seconds in each direction
	pairsTime    = 5    // seconds for all pairs of a rank together, at most
	widenTime    = 20 * time.Second
)

var streamMagic = [4]byte{'M', 'S', 'T', '2'}

// streamGreeting opens a further connection.
type streamGreeting struct {
	Magic   [4]byte
	Purpose purpose
	Epoch   int64
	Rank    int32
	Stream  int32 // from 1
}

// wider is the further connections while they are made.
type wider struct {
	*mesh
	mu    sync.Mutex
	prev  []net.Conn // by stream − 1
	next  []net.Conn
	pairs [][]net.Conn // by rank
	left  int
	done  chan struct{}
}

// widen opens the further connections of all ranks.
func (m *mesh) widen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, widenTime)
	defer cancel()
	n, self := len(m.q.Addresses), m.q.Rank
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort(m.q.Addresses[self], strconv.Itoa(Port)))
	if err != nil {
		return fmt.Errorf("listen on the overlay: %w", err)
	}
	defer l.Close()
	const more = streamCount - 1
	w := &wider{mesh: m, prev: make([]net.Conn, more), next: make([]net.Conn, more), pairs: make([][]net.Conn, n),
		left: 2 * more, done: make(chan struct{})}
	if n <= pairsUpTo {
		w.left += (n - 1) * more
		for rank := range w.pairs {
			w.pairs[rank] = make([]net.Conn, more)
		}
	}
	go w.accept(l)
	var calls errgroup.Group
	for stream := 1; stream <= more; stream++ {
		calls.Go(func() error { return w.call(ctx, forRing, (self+1)%n, stream) })
		for rank := self + 1; rank < n && n <= pairsUpTo; rank++ {
			calls.Go(func() error { return w.call(ctx, forPair, rank, stream) })
		}
	}
	err = calls.Wait()
	if err == nil {
		select {
		case <-w.done:
		case <-ctx.Done():
			err = errors.New("not all ranks opened their further connections")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.mu.Lock()
	m.ring.more = nil
	for i := range more {
		m.ring.more = append(m.ring.more, link{w.next[i], w.prev[i]})
	}
	m.morePairs = w.pairs
	m.mu.Unlock()
	if err == nil {
		m.each(func(c net.Conn) { err = errors.Join(err, bound(c)) })
	}
	return err
}

// bound limits a connection's buffers.
func bound(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	return errors.Join(t.SetReadBuffer(streamBuffer), t.SetWriteBuffer(streamBuffer))
}

// put stores a connection, once for each place.
func (w *wider) put(list []net.Conn, stream int, c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stream < 1 || stream > len(list) || w.left == 0 {
		c.Close()
		return
	}
	if old := list[stream-1]; old != nil { // an attempt whose answer was lost
		old.Close()
	} else if w.left--; w.left == 0 {
		close(w.done)
	}
	list[stream-1] = c
}

func (w *wider) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			g, err := w.greeted(c)
			switch {
			case err != nil:
				c.Close()
			case g.Purpose == forRing:
				w.put(w.prev, int(g.Stream), c)
			default:
				w.put(w.pairs[g.Rank], int(g.Stream), c)
			}
		}()
	}
}

func (w *wider) greeted(c net.Conn) (g streamGreeting, err error) {
	c.SetDeadline(time.Now().Add(2 * time.Second))
	defer c.SetDeadline(time.Time{})
	if err := binary.Read(c, binary.BigEndian, &g); err != nil {
		return g, err
	}
	n := len(w.q.Addresses)
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	switch {
	case err != nil:
		return g, err
	case g.Magic != streamMagic || g.Epoch != int64(w.q.Epoch) || g.Rank < 0 || int(g.Rank) >= n ||
		w.q.Addresses[g.Rank] != host:
		return g, errors.New("not of this cluster's epoch")
	case g.Purpose == forRing && int(g.Rank) != (w.q.Rank+n-1)%n, g.Purpose == forPair && int(g.Rank) >= w.q.Rank,
		g.Purpose != forRing && g.Purpose != forPair:
		return g, errors.New("not a rank that calls this one")
	}
	_, err = c.Write([]byte{'k'})
	return g, err
}

// call opens one connection, and retries until the other rank listens.
func (w *wider) call(ctx context.Context, p purpose, rank, stream int) error {
	for {
		c, err := greet(ctx, w.q, rank, 5*time.Second,
			streamGreeting{streamMagic, p, int64(w.q.Epoch), int32(w.q.Rank), int32(stream)})
		if err == nil {
			if p == forRing {
				w.put(w.next, stream, c)
			} else {
				w.put(w.pairs[rank], stream, c)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rank %d accepts no further connection: %w", rank, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// link is a connection to the next rank and one from the previous.
type link struct{ next, prev net.Conn }

// links are all of the ring's, one per stream.
func (r *ring) links() []link { return append([]link{{r.next, r.prev}}, r.more...) }

// part returns the i-th of n nearly equal parts.
func part(words []uint32, i, n int) []uint32 { return words[i*len(words)/n : (i+1)*len(words)/n] }

// lines are all connections to a rank.
func (m *mesh) lines(rank int) []net.Conn {
	out := []net.Conn{m.pair[rank]}
	if m.morePairs != nil {
		out = append(out, m.morePairs[rank]...)
	}
	return out
}

// pairBytesAt returns how much each pair sends in one direction if more is sent: as much as takes pairTime at the
// ring's speed, or less if there are many pairs.
func pairBytesAt(busbw float64, n int) int {
	seconds := min(pairTime, pairsTime/float64(2*turns(n)))
	const unit = block * streamCount
	return max(int(busbw*1e9/8*seconds)/unit, 1) * unit
}
