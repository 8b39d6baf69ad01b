package paths

import (
	"net/netip"
	"testing"
	"time"
)

// ends are boards that know each other and say what the test has them say, without a network.
func trio(t *testing.T) []*Board {
	t.Helper()
	boards := []*Board{New(newKey(t), nil, func(int) {}), New(newKey(t), nil, func(int) {}),
		New(newKey(t), nil, func(int) {})}
	for i, b := range boards {
		b.SetAble()
		for j, o := range boards {
			if i == j {
				continue
			}
			a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(j + 1)}), 4000)
			if err := b.SetPeer(o.self, j, []netip.AddrPort{a}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return boards
}

// reach has one end's peer answer at an address now.
func reach(b, peer *Board, w way, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[peer.self]
	p.add(w, false, at)
	for _, r := range p.routes {
		r.answeredAt = time.Time{}
	}
	p.routes[w].answeredAt = at
	p.choose(at)
}

func lan(j int) way {
	return way{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(j + 1)}), 4000)}
}

// spread has every end decide, and then send what it says to all others, except to those for which lost returns true.
func spread(t *testing.T, boards []*Board, at time.Time, lost func(from, to int) bool) {
	t.Helper()
	for _, b := range boards {
		b.mu.Lock()
		b.consent(at)
		b.mu.Unlock()
	}
	for i, from := range boards {
		for j, to := range boards {
			if i == j || lost != nil && lost(i, j) {
				continue
			}
			from.mu.Lock()
			p := from.peers[to.self]
			msg := p.ping(p.routes[lan(j)], nil, 0, at)
			from.mu.Unlock()
			to.handleMessage(to.table.Load(), msg, lan(i))
		}
	}
}

// All ends leave the board together: when each has proven a way to each, all have said so, and a moment has passed.
func TestAllEndsAgreeToLeave(t *testing.T) {
	t.Parallel()
	boards, now := trio(t), time.Now()
	agreed := func(at time.Time) (n int) {
		for _, b := range boards {
			if got := b.Agreed(at); got != nil {
				n++
				for key, a := range got {
					if !a.IsValid() {
						t.Errorf("no address of %s", key)
					}
				}
			}
		}
		return n
	}
	step := func(lost func(from, to int) bool) {
		now = now.Add(100 * time.Millisecond)
		spread(t, boards, now, lost)
	}
	for i, b := range boards {
		for j, o := range boards {
			if i != j && (i != 0 || j != 2) {
				reach(b, o, lan(j), now)
			}
		}
	}
	for range 20 {
		step(nil)
	}
	if n := agreed(now); n != 0 {
		t.Fatalf("%d ends leave though one pair has proven nothing", n)
	}
	if !boards[0].Undecided(now) {
		t.Error("new ends have decided")
	}
	again := func() { // the paths go on answering
		for i, b := range boards {
			for j, o := range boards {
				if i != j {
					reach(b, o, lan(j), now)
				}
			}
		}
	}
	again()
	for range 10 {
		step(func(from, to int) bool { return from == 0 && to == 1 })
		again()
	}
	if boards[1].Agreed(now) != nil {
		t.Error("an end leaves though another has not said that it is ready")
	}
	step(nil)
	step(nil)
	if boards[1].Agreed(now) != nil {
		t.Error("an end leaves at once")
	}
	for range 10 {
		step(nil)
		again()
	}
	if n := agreed(now); n != 3 {
		t.Errorf("%d of 3 ends leave", n)
	}
}

// What keeps an end on the board: a peer that cannot leave, one that is reached with help only, and no peer at all. One
// that has not answered for long does not.
func TestWhatKeepsAnEndOnTheBoard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	relayed := way{addr: netip.MustParseAddrPort("203.0.113.5:3478"), relayed: true}
	punched := way{addr: netip.MustParseAddrPort("203.0.113.77:5555")}
	for _, tc := range []struct {
		name   string
		change func(boards []*Board)
		later  time.Duration
		leaves bool
		open   bool // undecided
	}{
		{"nothing", func([]*Board) {}, 0, true, true},
		{"an end that cannot", func(b []*Board) { b[0].able = false }, 0, false, false},
		{"a peer that cannot", func(b []*Board) { b[0].peers[b[2].self].flags = 0 }, 0, false, false},
		{"a relay", func(b []*Board) { reach(b[0], b[2], relayed, now.Add(time.Second)) }, time.Second, false, false},
		{"a hole", func(b []*Board) { reach(b[0], b[2], punched, now.Add(time.Second)) }, time.Second, false, false},
		{"a dead peer", func(b []*Board) {
			at := now.Add(2 * absentAfter)
			for _, r := range b[0].peers[b[2].self].routes {
				r.answeredAt = time.Time{}
			}
			reach(b[0], b[1], lan(1), at)
		}, 2 * absentAfter, true, true},
		{"no peers", func(b []*Board) { b[0].Forget(b[1].self); b[0].Forget(b[2].self) }, 0, false, false},
	} {
		boards := trio(t)
		for j := 1; j < 3; j++ {
			reach(boards[0], boards[j], lan(j), now)
			p := boards[0].peers[boards[j].self]
			p.flags, p.reported = flagAble|flagReady, true
		}
		tc.change(boards)
		at := now.Add(tc.later)
		b := boards[0]
		for _, later := range []time.Duration{0, 2 * settle} {
			if r := b.peers[boards[1].self]; r != nil {
				if best := r.best.Load(); best != nil {
					best.answeredAt = at.Add(later)
				}
			}
			b.mu.Lock()
			b.consent(at.Add(later))
			b.mu.Unlock()
		}
		if got := b.Agreed(at.Add(2 * settle)); (got != nil) != tc.leaves {
			t.Errorf("%s: leaves with %v", tc.name, got)
		}
		if got := b.Undecided(at.Add(2 * settle)); got != tc.open {
			t.Errorf("%s: undecided %v", tc.name, got)
		}
	}
}

// An older end's probe ends after its addresses, or is padded with zeros: it says nothing.
func TestOlderEndsSayNothing(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	p := only(b)
	for _, size := range []int{0, 900} {
		p.flags = flagAble
		from := only(a)
		msg := from.message(kindPing, nonce{1}, []byte{0}, size)
		b.handleMessage(b.table.Load(), msg, way{addr: netip.MustParseAddrPort("192.0.2.9:7")})
		if p.flags != 0 || !p.reported {
			t.Errorf("a probe of %d bytes says %d", size, p.flags)
		}
	}
}
