package preflight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// ring is this rank's position: it sends to the next rank and receives from the previous one.
type ring struct {
	rank, n    int
	next, prev net.Conn
	more       []link // further connections; see widen

	begun     int  // rounds
	knowsPrev bool // whether the previous rank can measure with more data and connections
	scales    bool // whether all can
}

// block is how much is received before it is added: small enough for the guest's 64 MB.
const block = 256 << 10

// result is the outcome of the timed rounds.
type result struct {
	bytes   int64
	seconds float64 // duration of one round: the slowest rank's median
	scaled  bool    // whether more data was sent, over several connections
}

// busbw returns the bus bandwidth in gigabits per second as nccl-tests define it: S/t·2(n−1)/n.
func (r result) busbw(n int) float64 {
	return gbps(r.bytes, r.seconds) * 2 * float64(n-1) / float64(n)
}

// budget is roughly how long the timed rounds take together, in seconds. longest is how long the data of one round may
// take: if all of size takes longer, less is sent; otherwise a home line of a few Mbit/s would take minutes.
const (
	budget    = 0.5
	longest   = 3
	firstPart = 32 // fraction of size in the first round with data
	growth    = 4
	minRounds = 3
	maxRounds = 15
)

// allReduces runs growing rounds to warm up, then timed ones, each with fresh data whose result it checks.
func (m *mesh) allReduces(ctx context.Context, size int64) (result, error) {
	r := m.ring
	all := make([]uint32, size/4)
	words, warm, err := r.warmUp(all)
	if err != nil {
		return result{}, err
	}
	most, scaled := maxRounds, false
	// What follows depends on warm, which is the same on every rank.
	if r.scales && (result{bytes: int64(len(words)) * 4, seconds: warm}).busbw(r.n) >= m.fast {
		if err = m.widen(ctx); err == nil {
			words, most, scaled = make([]uint32, min(moreData*size, maxBytes)/4), scaledRounds, true
			warm, err = r.timed(words)
		}
		if err != nil {
			return result{}, err
		}
	}
	rounds := min(max(int(budget/warm), minRounds), most)
	times := make([]float64, rounds)
	for i := range times {
		if times[i], err = r.round(words); err != nil {
			return result{}, err
		}
	}
	slices.Sort(times)
	median, err := r.slowest(times[rounds/2])
	return result{bytes: int64(len(words)) * 4, seconds: median, scaled: scaled}, err
}

// warmUp runs rounds that grow up to the full size, or to as much as a round may take, and returns that size and the
// duration of the last round. Both are the same on every rank, because each round's time is the slowest rank's.
func (r *ring) warmUp(all []uint32) (words []uint32, took float64, err error) {
	words = all[:min(r.n, len(all))]
	latency, err := r.timed(words)
	if err != nil {
		return nil, 0, err
	}
	words = all[:max(len(all)/firstPart, len(words))]
	for again := true; ; {
		if took, err = r.timed(words); err != nil {
			return nil, 0, err
		}
		switch next := larger(len(words), len(all), took-latency); {
		case next > len(words):
			words, again = all[:next], true
		case again && next < len(all): // congestion windows grow from one round to the next
			again = false
		default:
			return words, took, nil
		}
	}
}

// timed runs a round and returns how long it took the slowest rank.
func (r *ring) timed(words []uint32) (float64, error) {
	took, err := r.round(words)
	if err != nil {
		return 0, err
	}
	return r.slowest(took)
}

// larger returns how many words the next round may have if a round of words took so many seconds more than an almost
// empty one: the same number again if the next round could take too long.
func larger(words, all int, took float64) int {
	next := min(words*growth, all)
	if took*float64(next)/float64(words) > longest {
		return words
	}
	return next
}

// round fills words with this rank's data, sums them over all ranks and checks every sum. It returns the duration of
// the all-reduce itself in seconds.
func (r *ring) round(words []uint32) (float64, error) {
	for i := range words {
		words[i] = sample(i) * (2*uint32(r.rank) + 1)
	}
	if err := r.begin(); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := r.allReduce(words); err != nil {
		return 0, err
	}
	took := time.Since(start).Seconds()
	// The odd numbers up to 2n−1 add up to n².
	square := uint32(r.n) * uint32(r.n)
	for i, w := range words {
		if w != sample(i)*square {
			return 0, fmt.Errorf("the all-reduce gave a %w sum at word %d: %d, not %d", errWrong, i, w, sample(i)*square)
		}
	}
	return took, nil
}

// sample returns data that looks random, so that no device on the path can compress or repeat it unnoticed.
func sample(i int) uint32 {
	x := uint32(i)*2654435761 + 0x9e3779b9
	x ^= x >> 15
	x *= 0x85ebca6b
	return x ^ x>>13
}

// allReduce is the ring algorithm: n−1 steps that each add one chunk of the neighbour's, and n−1 that pass the sums
// round.
func (r *ring) allReduce(words []uint32) error {
	chunk := func(i int) []uint32 {
		i = ((i % r.n) + r.n) % r.n
		return words[i*len(words)/r.n : (i+1)*len(words)/r.n]
	}
	for step := range r.n - 1 {
		if err := r.exchange(chunk(r.rank-step), chunk(r.rank-step-1), true); err != nil {
			return err
		}
	}
	for step := range r.n - 1 {
		if err := r.exchange(chunk(r.rank+1-step), chunk(r.rank-step), false); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends one chunk to the next rank while it receives another from the previous one, a part over each stream.
func (r *ring) exchange(out, in []uint32, sum bool) error {
	links := r.links()
	var all errgroup.Group
	for i, l := range links {
		all.Go(func() error { return r.exchangeOver(l, part(out, i, len(links)), part(in, i, len(links)), sum) })
	}
	return all.Wait()
}

func (r *ring) exchangeOver(l link, out, in []uint32, sum bool) error {
	sent := make(chan error, 1)
	go func() { sent <- send(l.next, out) }()
	err := receive(l.prev, in, sum)
	if err != nil {
		for _, o := range r.links() {
			o.next.SetWriteDeadline(time.Unix(1, 0)) // do not wait for a rank that waits for us
			o.prev.SetReadDeadline(time.Unix(1, 0))
		}
	}
	if sendErr := <-sent; err == nil && sendErr != nil {
		return fmt.Errorf("rank %d takes no more data: %w", (r.rank+1)%r.n, sendErr)
	}
	if err != nil {
		return fmt.Errorf("rank %d sends no more data: %w", (r.rank+r.n-1)%r.n, err)
	}
	return nil
}

func send(c net.Conn, words []uint32) error {
	buf := make([]byte, 0, block)
	for len(words) > 0 {
		n := min(len(words), block/4)
		buf = buf[:0]
		for _, w := range words[:n] {
			buf = binary.LittleEndian.AppendUint32(buf, w)
		}
		if _, err := c.Write(buf); err != nil {
			return err
		}
		words = words[n:]
	}
	return nil
}

func receive(c net.Conn, words []uint32, sum bool) error {
	buf := make([]byte, block)
	for len(words) > 0 {
		n := min(len(words), block/4)
		if _, err := io.ReadFull(c, buf[:4*n]); err != nil {
			return err
		}
		for i := range n {
			w := binary.LittleEndian.Uint32(buf[4*i:])
			if sum {
				w += words[i]
			}
			words[i] = w
		}
		words = words[n:]
	}
	return nil
}

// agree returns when every rank has called it, with the greatest of the ranks' numbers.
func (r *ring) agree() error {
	_, err := r.slowest(0)
	return err
}

// begin starts a round together with all ranks. In the first two they find out whether all can measure with more data
// and connections; see scaling.
func (r *ring) begin() error {
	r.begun++
	switch r.begun {
	case 1:
		first, _, err := r.pass(scaling)
		r.knowsPrev = first == scaling
		return err
	case 2:
		objection := 0.0
		if !r.knowsPrev {
			objection = 1
		}
		_, most, err := r.pass(objection)
		r.scales = most == 0
		return err
	}
	return r.agree()
}

// slowest returns the greatest of all ranks' v.
func (r *ring) slowest(v float64) (float64, error) {
	_, most, err := r.pass(v)
	return most, err
}

// pass returns the previous rank's v and the greatest of all ranks': n−1 times, every rank passes on the greatest that
// it has seen.
func (r *ring) pass(v float64) (first, most float64, err error) {
	if v < 0 || math.IsNaN(v) {
		return 0, 0, errors.New("not a time")
	}
	most = v
	for step := range r.n - 1 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(most))
		if _, err := r.next.Write(b[:]); err != nil {
			return 0, 0, fmt.Errorf("rank %d takes no more data: %w", (r.rank+1)%r.n, err)
		}
		if _, err := io.ReadFull(r.prev, b[:]); err != nil {
			return 0, 0, fmt.Errorf("rank %d sends no more data: %w", (r.rank+r.n-1)%r.n, err)
		}
		got := math.Float64frombits(binary.LittleEndian.Uint64(b[:]))
		if step == 0 {
			first = got
		}
		most = max(most, got)
	}
	return first, most, nil
}
