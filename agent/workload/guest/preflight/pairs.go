package preflight

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	pings    = 9
	pairSize = 4 << 20 // half of the default size of the all-reduce
)

// pairBytes returns how much a pair sends: pairSize, reduced in the same proportion as the ring's data.
func pairBytes(reduced, asked int64) int {
	return int(max((pairSize*reduced/asked)/block, 1)) * block
}

// roundTrips returns the median round trip to every rank in microseconds. The lower rank of a pair pings first, then
// the other, so each has its own figure. All pairs run at once, because a ping is small.
func (m *mesh) roundTrips() ([]float64, error) {
	out := make([]float64, len(m.pair))
	var g errgroup.Group
	for rank, c := range m.pair {
		if c == nil {
			continue
		}
		g.Go(func() (err error) {
			if m.q.Rank < rank {
				if out[rank], err = ping(c); err == nil {
					err = pong(c)
				}
			} else if err = pong(c); err == nil {
				out[rank], err = ping(c)
			}
			if err != nil {
				err = fmt.Errorf("rank %d does not answer pings: %w", rank, err)
			}
			return err
		})
	}
	return out, g.Wait()
}

func ping(c net.Conn) (float64, error) {
	times := make([]float64, pings)
	b := make([]byte, 1)
	for i := range times {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return 0, err
		}
		times[i] = float64(time.Since(start).Nanoseconds()) / 1e3
	}
	slices.Sort(times)
	return times[pings/2], nil
}

func pong(c net.Conn) error {
	b := make([]byte, 1)
	for range pings {
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// pairs returns the bandwidth to every rank in gigabits per second. The ranks meet as in a tournament: in every turn
// each rank has at most one opponent, so no two measurements share a host; within a pair one rank sends, then the
// other.
func (m *mesh) pairs(size int) ([]float64, error) {
	out := make([]float64, len(m.pair))
	for turn := range turns(len(m.pair)) {
		if rank := opponent(m.q.Rank, turn, len(m.pair)); rank >= 0 {
			speed, err := pairSpeed(m.lines(rank), size, m.q.Rank < rank)
			if err != nil {
				return nil, fmt.Errorf("between ranks %d and %d: %w", m.q.Rank, rank, err)
			}
			out[rank] = speed
		}
		if err := m.ring.agree(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pair is the bandwidth from one rank to another.
type pair struct {
	gbps     float64
	from, to int
}

// slowestPair returns the slowest pair that any rank has measured; the ring passes it round.
func (m *mesh) slowestPair(own []float64) (pair, error) {
	var p pair
	for rank, speed := range own {
		if rank != m.q.Rank && (p.gbps == 0 || speed < p.gbps) {
			p = pair{speed, m.q.Rank, rank}
		}
	}
	for range len(own) - 1 {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(p.gbps))
		binary.LittleEndian.PutUint32(b[8:], uint32(p.from))
		binary.LittleEndian.PutUint32(b[12:], uint32(p.to))
		if _, err := m.ring.next.Write(b[:]); err != nil {
			return p, fmt.Errorf("rank %d takes no more data: %w", (m.q.Rank+1)%len(own), err)
		}
		if _, err := io.ReadFull(m.ring.prev, b[:]); err != nil {
			return p, fmt.Errorf("rank %d sends no more data: %w", (m.q.Rank+len(own)-1)%len(own), err)
		}
		other := pair{math.Float64frombits(binary.LittleEndian.Uint64(b[:])), int(binary.LittleEndian.Uint32(b[8:])),
			int(binary.LittleEndian.Uint32(b[12:]))}
		if other.gbps > 0 && other.gbps < p.gbps {
			p = other
		}
	}
	return p, nil
}

// turns and opponent implement the circle method of round-robin tournaments; with an odd number of ranks one opponent
// is missing in each turn.
func turns(n int) int { return n + n%2 - 1 }

// opponent returns the rank that rank meets in a turn, or −1.
func opponent(rank, turn, n int) int {
	even := n + n%2
	last := even - 1
	var other int
	switch {
	case rank == last:
		other = turn
	case rank == turn:
		other = last
	default:
		other = ((2*turn-rank)%last + last) % last
	}
	if other >= n {
		return -1
	}
	return other
}

func pairSpeed(lines []net.Conn, size int, first bool) (speed float64, err error) {
	if !first {
		if err := overAll(lines, size, takeIn); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if err = overAll(lines, size, sendOut); err != nil {
		return 0, err
	}
	speed = gbps(int64(size), time.Since(start).Seconds())
	if first {
		err = overAll(lines, size, takeIn)
	}
	return speed, err
}

// overAll sends or receives an equal part of size over each connection at once.
func overAll(lines []net.Conn, size int, do func(net.Conn, int) error) error {
	var all errgroup.Group
	for _, c := range lines {
		all.Go(func() error { return do(c, size/len(lines)) })
	}
	return all.Wait()
}

// sendOut returns when the other rank has received everything.
func sendOut(c net.Conn, size int) error {
	buf := make([]byte, block)
	for i := range buf {
		buf[i] = byte(sample(i))
	}
	for left := size; left > 0; left -= len(buf) {
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(c, buf[:1])
	return err
}

func takeIn(c net.Conn, size int) error {
	if _, err := io.CopyN(io.Discard, c, int64(size)); err != nil {
		return err
	}
	_, err := c.Write([]byte{1})
	return err
}
