package preflight

import (
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/agent/workload/guest"
)

// scaledBy runs the all-reduce and the pairs of a cluster in which every line counts as fast. The ranks for which older
// returns true send what guests of older versions send.
func scaledBy(t *testing.T, reqs []guest.PreflightRequest, older func(rank int) bool) (all []result, streams []int,
	pairs [][]float64) {
	t.Helper()
	all, streams, pairs = make([]result, len(reqs)), make([]int, len(reqs)), make([][]float64, len(reqs))
	errs := make([]error, len(reqs))
	var wg sync.WaitGroup
	for rank, q := range reqs {
		wg.Go(func() {
			m, err := join(t.Context(), q)
			if err != nil {
				errs[rank] = err
				return
			}
			defer m.close()
			m.fast = 0
			if older(rank) {
				m.ring.begun = 2 // sends 0 where the others say what they can
			}
			if all[rank], errs[rank] = m.allReduces(t.Context(), q.Bytes); errs[rank] != nil {
				return
			}
			streams[rank] = 1 + len(m.ring.more)
			size := pairBytes(all[rank].bytes, q.Bytes)
			if all[rank].scaled {
				size = pairBytesAt(0.01, len(reqs))
			}
			if pairs[rank], err = m.pairs(size); err == nil {
				err = m.ring.agree()
			}
			errs[rank] = err
		})
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", rank, len(reqs), err)
		}
	}
	return all, streams, pairs
}

// Over a fast network more data is sent, over several connections, if all ranks can; one that is older keeps all to
// what it does, wherever it stands in the ring.
func TestFastLinesCarryMoreIfAllRanksCan(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		n, old  int
		streams int
		bytes   int64
	}{
		{"two", 2, -1, streamCount, moreData << 18},
		{"five", 5, -1, streamCount, moreData << 18},
		{"the first of three is older", 3, 0, 1, 1 << 18},
		{"the last of three is older", 3, 2, 1, 1 << 18},
		{"one of two is older", 2, 1, 1, 1 << 18},
	} {
		reqs := requests(tc.n)
		all, streams, pairs := scaledBy(t, reqs, func(rank int) bool { return rank == tc.old })
		for rank, r := range all {
			if streams[rank] != tc.streams || r.bytes > tc.bytes || r.scaled != (tc.streams > 1) || r.seconds <= 0 {
				t.Errorf("%s: rank %d has %d connections, %+v", tc.name, rank, streams[rank], r)
			}
			for other, speed := range pairs[rank] {
				if (speed > 0) != (other != rank) {
					t.Errorf("%s: from rank %d to %d: %v Gbit/s", tc.name, rank, other, speed)
				}
			}
		}
	}
}

// A slow line keeps to one connection.
func TestSlowLinesKeepOneConnection(t *testing.T) {
	t.Parallel()
	reqs := requests(2)
	var wg sync.WaitGroup
	for _, q := range reqs {
		wg.Go(func() {
			m, err := join(t.Context(), q)
			if err != nil {
				t.Error(err)
				return
			}
			defer m.close()
			m.fast = 1e9
			r, err := m.allReduces(t.Context(), q.Bytes)
			if err != nil || r.scaled || len(m.ring.more) > 0 || !m.ring.scales {
				t.Errorf("%+v, %d further connections, %v", r, len(m.ring.more), err)
			}
		})
	}
	wg.Wait()
}

// Each pair sends for a quarter of a second, or less where there are many; at least a block over each connection.
func TestPairsSendWhatTheLineCarries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		gbps    float64
		n       int
		seconds float64
	}{{100, 2, 0.25}, {10, 8, 0.25}, {10, 32, 5.0 / 62}} {
		got := pairBytesAt(tc.gbps, tc.n)
		want := tc.gbps * 1e9 / 8 * tc.seconds
		if float64(got) > want || float64(got) < want-block*streamCount || got%(block*streamCount) != 0 {
			t.Errorf("%+v: %d bytes, want about %.0f", tc, got, want)
		}
	}
	if got := pairBytesAt(0.001, 2); got != block*streamCount {
		t.Errorf("a slow line: %d bytes", got)
	}
}

// A further connection is taken from the rank that should make it, and from no other.
func TestStrangersOpenNoFurtherConnection(t *testing.T) {
	t.Parallel()
	reqs := requests(3)
	m := &mesh{q: reqs[1], ring: &ring{rank: 1, n: 3}}
	w := &wider{mesh: m, pairs: make([][]net.Conn, 3), done: make(chan struct{})}
	for _, tc := range []struct {
		name string
		from int
		g    streamGreeting
		want string
	}{
		{"the previous rank", 0, streamGreeting{streamMagic, forRing, 3, 0, 1}, ""},
		{"a lower rank", 0, streamGreeting{streamMagic, forPair, 3, 0, 1}, ""},
		{"a higher rank for a pair", 2, streamGreeting{streamMagic, forPair, 3, 2, 1}, "calls this one"},
		{"the next rank for the ring", 2, streamGreeting{streamMagic, forRing, 3, 2, 1}, "calls this one"},
		{"another epoch", 0, streamGreeting{streamMagic, forRing, 2, 0, 1}, "epoch"},
		{"another's rank", 2, streamGreeting{streamMagic, forRing, 3, 0, 1}, "epoch"},
		{"no rank", 0, streamGreeting{streamMagic, forRing, 3, 7, 1}, "epoch"},
		{"an older greeting", 0, streamGreeting{magic, forRing, 3, 0, 1}, "epoch"},
	} {
		l, err := net.Listen("tcp4", reqs[1].Addresses[1]+":0")
		if err != nil {
			t.Fatal(err)
		}
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(reqs[1].Addresses[tc.from])}}
		c, err := d.DialContext(t.Context(), "tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := binary.Write(c, binary.BigEndian, tc.g); err != nil {
			t.Fatal(err)
		}
		taken, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.greeted(taken)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		taken.Close()
		c.Close()
		l.Close()
	}
}
