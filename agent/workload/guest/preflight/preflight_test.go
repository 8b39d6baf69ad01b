package preflight

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// block127 hands every test its own loopback addresses: all ranks listen on one port.
var block127 struct {
	sync.Mutex
	next int
}

func requests(n int) []guest.PreflightRequest {
	block127.Lock()
	block127.next++
	net := block127.next
	block127.Unlock()
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("127.77.%d.%d", net, i+1)
	}
	out := make([]guest.PreflightRequest, n)
	for i := range out {
		out[i] = guest.PreflightRequest{
			LeaseRef:  agentapi.LeaseRef{Lease: fmt.Sprint("lease_", i), Epoch: 3},
			Rank:      i,
			Addresses: addrs,
			Bytes:     1 << 18,
			JoinMS:    30_000,
		}
	}
	return out
}

func runAll(t *testing.T, reqs []guest.PreflightRequest) []agentapi.Preflight {
	out := make([]agentapi.Preflight, len(reqs))
	var wg sync.WaitGroup
	for i, q := range reqs {
		wg.Go(func() { out[i] = Run(t.Context(), q) })
	}
	wg.Wait()
	return out
}

func TestMeasures(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 8, 9} {
		for rank, p := range runAll(t, requests(n)) {
			if !p.OK || p.Detail != "" {
				t.Errorf("%d nodes, rank %d: %s", n, rank, p.Detail)
				continue
			}
			if n == 1 {
				if p.BusbwGbps != 0 {
					t.Errorf("one node has %v Gbit/s", p.BusbwGbps)
				}
				continue
			}
			// 256 KiB are no multiple of every n: chunks differ in length. Over a slow line fewer are sent, and a machine that
			// does much else may be one.
			if want := float64(p.Bytes) * 8 / p.Seconds / 1e9 * 2 * float64(n-1) / float64(n); p.Bytes > 1<<18*moreData ||
				p.Bytes < 1<<18/firstPart || math.Abs(p.BusbwGbps-want) > want/1e9 {
				t.Errorf("%d nodes: %d bytes in %v s is %v Gbit/s, not %v", n, p.Bytes, p.Seconds, want, p.BusbwGbps)
			}
			if pairs := len(p.PairGbps) > 0; !pairs {
				t.Errorf("%d nodes: pairs measured: %v", n, pairs)
			}
			for other := range n {
				if zero := p.RTTMicros[other] == 0; zero != (other == rank) {
					t.Errorf("rank %d: round trip to %d is %v µs", rank, other, p.RTTMicros[other])
				}
				if len(p.PairGbps) > 0 && (p.PairGbps[other] == 0) != (other == rank) {
					t.Errorf("rank %d: %v Gbit/s to rank %d", rank, p.PairGbps[other], other)
				}
			}
		}
	}
}

func TestSaysWhy(t *testing.T) {
	t.Parallel()
	short := func(reqs []guest.PreflightRequest) []guest.PreflightRequest {
		for i := range reqs {
			reqs[i].JoinMS = 700
		}
		return reqs
	}
	for name, c := range map[string]struct {
		reqs func() []guest.PreflightRequest
		want []string // by rank
	}{
		"one is missing": {func() []guest.PreflightRequest { return short(requests(3))[:2] },
			[]string{"rank 2 does not answer", "rank 2 does not answer"}},
		"two are missing": {func() []guest.PreflightRequest { return short(requests(4))[:2] },
			[]string{"ranks 2 and 3 do not answer", "ranks 2 and 3 do not answer"}},
		"another epoch": {func() []guest.PreflightRequest {
			r := short(requests(2))
			r[1].Epoch++
			return r
		}, []string{"rank 1 does not answer", "rank 0 does not answer"}},
		"too slow": {func() []guest.PreflightRequest {
			r := requests(2)
			r[0].MinGbps, r[1].MinGbps = 1e6, 1e6
			return r
		}, []string{"the slowest pair is from rank", "1000000.00 were asked for"}},
		"no such rank": {func() []guest.PreflightRequest {
			r := requests(1)
			r[0].Rank = 1
			return r
		}, []string{"rank 1 of 1 nodes"}},
		"an address is missing": {func() []guest.PreflightRequest {
			r := requests(2)
			r[0].Addresses[1] = ""
			return r[:1]
		}, []string{"rank 1 has no address"}},
		"too much for a guest": {func() []guest.PreflightRequest {
			r := requests(2)
			r[0].Bytes = 1 << 30
			return r[:1]
		}, []string{"cannot be all-reduced"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for rank, p := range runAll(t, c.reqs()) {
				if p.OK || !strings.Contains(p.Detail, c.want[rank]) {
					t.Errorf("rank %d: ok %v, %q; want %q", rank, p.OK, p.Detail, c.want[rank])
				}
			}
		})
	}
}

// A rank that dies in mid-measurement fails the others at once, by name.
func TestLostInTheMiddle(t *testing.T) {
	t.Parallel()
	reqs := requests(3)
	var wg sync.WaitGroup
	out := make([]agentapi.Preflight, 2)
	for i, q := range reqs[:2] {
		wg.Go(func() { out[i] = Run(t.Context(), q) })
	}
	m, err := join(t.Context(), reqs[2])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.roundTrips(); err != nil {
		t.Fatal(err)
	}
	m.close()
	wg.Wait()
	for rank, p := range out {
		if p.OK || !strings.Contains(p.Detail, "rank") {
			t.Errorf("rank %d: ok %v, %q", rank, p.OK, p.Detail)
		}
	}
}

// A rank that others have connections with comes again while they still wait for a third: what they had with it is let
// go of, whatever it had sent, and one measurement is enough.
func TestARankThatComesAgainWhileOthersJoin(t *testing.T) {
	t.Parallel()
	reqs := requests(3)
	var wg sync.WaitGroup
	out := make([]agentapi.Preflight, 3)
	begin := func(rank int) { wg.Go(func() { out[rank] = Run(t.Context(), reqs[rank]) }) }
	begin(0)
	c := call(t.Context(), reqs[2], forRing, 0) // rank 2 meets rank 0, sends something, and dies before rank 1 is there
	if c == nil {
		t.Fatal(t.Context().Err())
	}
	_, err := c.Write([]byte{0})
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	begin(1)
	begin(2)
	wg.Wait()
	for rank, p := range out {
		if !p.OK {
			t.Errorf("rank %d: %s", rank, p.Detail)
		}
	}
}

// keep runs a rank's Keep; the function it returns waits for its next result.
func keep(t *testing.T, q guest.PreflightRequest, measured bool) (next func() agentapi.Preflight, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	results, done := make(chan agentapi.Preflight, 100), make(chan struct{})
	go func() {
		defer close(done)
		Keep(ctx, q, measured, func(p agentapi.Preflight) { results <- p })
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return func() agentapi.Preflight {
		select {
		case p := <-results:
			return p
		case <-time.After(2 * time.Minute):
			t.Error("no result")
			return agentapi.Preflight{}
		}
	}, stop
}

// A rank that dies in mid-measurement and comes again is measured with again, and so is one that dies after it: those
// that had a result make another.
func TestABrokenMeasurementIsMadeAgain(t *testing.T) {
	t.Parallel()
	reqs := requests(3)
	first, _ := keep(t, reqs[0], false)
	second, stopSecond := keep(t, reqs[1], false)
	m, err := join(t.Context(), reqs[2])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.roundTrips(); err != nil {
		t.Fatal(err)
	}
	m.close()
	third, _ := keep(t, reqs[2], false)
	for rank, next := range []func() agentapi.Preflight{first, second, third} {
		if p := next(); !p.OK {
			t.Errorf("rank %d: %s", rank, p.Detail)
		}
	}
	stopSecond()
	again, _ := keep(t, reqs[1], false)
	if p := again(); !p.OK {
		t.Errorf("a rank that came again: %s", p.Detail)
	}
	if p := first(); !p.OK {
		t.Errorf("measured again: %s", p.Detail)
	}
}

// A guest that was started again after its rank had been measured stands by for one that had not.
func TestStandsBy(t *testing.T) {
	t.Parallel()
	reqs := requests(2)
	_, _ = keep(t, reqs[0], true)
	if p := Run(t.Context(), reqs[1]); !p.OK {
		t.Error(p.Detail)
	}
}

// A rank that breaks off every time fails the others in the end.
func TestBrokenTooOften(t *testing.T) {
	t.Parallel()
	reqs := requests(2)
	next, _ := keep(t, reqs[0], false)
	for range maxBroken + 1 {
		m, err := join(t.Context(), reqs[1])
		if err != nil {
			t.Fatal(err)
		}
		m.close()
	}
	if p := next(); p.OK || !strings.Contains(p.Detail, "rank 1") {
		t.Errorf("ok %v, %q", p.OK, p.Detail)
	}
}

// A sum that is wrong in one bit is found.
func TestWrongDataIsSeen(t *testing.T) {
	t.Parallel()
	reqs := requests(2)
	lies := make(chan error, 1)
	go func() {
		m, err := join(t.Context(), reqs[1])
		if err != nil {
			lies <- err
			return
		}
		defer m.close()
		words := make([]uint32, 1024)
		for i := range words {
			words[i] = sample(i) * 3
		}
		words[600] ^= 1 << 7
		lies <- errors.Join(m.ring.agree(), m.ring.allReduce(words))
	}()
	m, err := join(t.Context(), reqs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	honest := m.ring
	if _, err := honest.round(make([]uint32, 1024)); err == nil ||
		!strings.Contains(err.Error(), "wrong sum at word 600") {
		t.Errorf("one flipped bit: %v", err)
	}
	if err := <-lies; err != nil {
		t.Error(err)
	}
}

// Every pair meets exactly once, and no rank meets two others at a time.
func TestTournament(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 9; n++ {
		met := map[[2]int]int{}
		for turn := range turns(n) {
			for rank := range n {
				other := opponent(rank, turn, n)
				if other == rank || other >= n || other >= 0 && opponent(other, turn, n) != rank {
					t.Fatalf("%d ranks, turn %d: %d meets %d", n, turn, rank, other)
				}
				if other > rank {
					met[[2]int{rank, other}]++
				}
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Errorf("%d ranks: %d pairs met", n, len(met))
		}
	}
}

// Every rank names the same slowest pair, and a network is judged by it as by the ring.
func TestNamesTheSlowPair(t *testing.T) {
	t.Parallel()
	details := map[string]bool{}
	reqs := requests(4)
	for i := range reqs {
		reqs[i].MinGbps = 1e6
	}
	for _, p := range runAll(t, reqs) {
		details[p.Detail] = true
	}
	if len(details) != 1 {
		t.Errorf("the ranks say different things: %v", details)
	}
	slow := pair{0.2, 1, 3}
	for _, tc := range []struct {
		busbw, min float64
		slow       pair
		want       string
	}{
		{1, 0.1, slow, ""},
		{1, 0.5, slow, "from rank 1 to rank 3 with 0.20"},
		{0.3, 0.5, pair{0.6, 0, 1}, "from rank 0 to rank 1 with 0.60"},
		{0.3, 0.5, pair{}, "the ring reached 0.30"},
		{0.003, 0.0042, pair{0.0017, 0, 2}, "with 0.0017 Gbit/s, the ring of all reached 0.003; 0.0042 were asked for"},
		{0.6, 0.5, pair{}, ""},
	} {
		if got := verdict(tc.busbw, tc.slow, tc.min); got != tc.want && (tc.want == "" || !strings.Contains(got, tc.want)) {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// Over a slow line less is sent, so that no round takes longer than is borne with; over a quick one all of it.
func TestSlowLinesSendLess(t *testing.T) {
	t.Parallel()
	const all = 8 << 18
	for _, tc := range []struct {
		bandwidth   float64 // words per second
		least, pair int
	}{
		{1e9, all, pairSize},
		{all / 2.9, all, pairSize},
		{all / 8, all / 8, pairSize / 8},
		{all / 200, all / firstPart, block}, // slower than anything of use, and still measured
	} {
		words := all / firstPart
		for {
			next := larger(words, all, float64(words)/tc.bandwidth)
			if next == words {
				break
			}
			if words = next; float64(words)/tc.bandwidth > longest {
				t.Errorf("%+v: a round of %d words takes too long", tc, words)
			}
		}
		if words < tc.least {
			t.Errorf("%+v: %d words", tc, words)
		}
		if got := pairBytes(int64(4*words), 4*all); got < tc.pair || got%block != 0 || got > pairSize {
			t.Errorf("%+v: pairs send %d", tc, got)
		}
	}
}
