package paths

import (
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// An end says in its probes whether it would leave the board for the kernel's WireGuard, which is faster, sends each
// peer's packets to one address, and neither sends probes nor answers them. An end that left alone would look dead to
// the boards of the others, so all of them leave at about the same time, and only if every pair has proven an address
// at which packets arrive without a router's or a relay's help. An older end says neither.
const (
	flagAble  = 1 << 0 // could leave
	flagReady = 1 << 1 // could leave, as could all its peers, and each of them answers at such an address
)

const (
	// settle is how long all ends must have been ready before one leaves. In that time each end sends its flags to the
	// others several times.
	settle = 600 * time.Millisecond
	// pingReady is the interval of probes during readyFor, after an end has become ready.
	pingReady = 150 * time.Millisecond
	readyFor  = 5 * time.Second
	// absentAfter is how long a peer must not have answered before the others leave without it: it may be down, or have
	// left already.
	absentAfter = time.Minute
)

// SetAble makes this end report to its peers that it can move to the kernel's WireGuard.
func (b *Board) SetAble() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.able = true
}

// Agreed returns the address of each peer if all ends have agreed to leave the board, else nil. The address of a peer
// that has not answered for long is the zero AddrPort.
func (b *Board) Agreed(now time.Time) map[wgtypes.Key]netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agreedSince.IsZero() || now.Sub(b.agreedSince) < settle || b.flagsNow(now)&flagReady == 0 {
		return nil
	}
	out := make(map[wgtypes.Key]netip.AddrPort, len(b.peers))
	for key, p := range b.peers {
		out[key] = netip.AddrPort{}
		if r := p.best.Load(); !p.absent(now) && r != nil {
			out[key] = r.addr
		}
	}
	return out
}

// Undecided reports whether the ends may still leave the board soon: they have become ready a moment ago, or a peer is
// new and nothing yet speaks against it.
func (b *Board) Undecided(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.able || len(b.peers) == 0 {
		return false
	}
	if !b.readySince.IsZero() {
		return now.Sub(b.readySince) < readyFor
	}
	fresh := false
	for _, p := range b.peers {
		if p.keeps(now) {
			return false
		}
		fresh = fresh || now.Sub(p.since) < readyFor/2
	}
	return fresh
}

// keeps reports whether a peer keeps the others on the board: it cannot leave, or is reached with help only.
func (p *peer) keeps(now time.Time) bool {
	if p.reported && p.flags&flagAble == 0 {
		return true
	}
	r := p.best.Load()
	return r != nil && r.live(now) && r.kind != LAN && r.kind != Direct && now.Sub(p.since) > settle
}

// consent decides what this end says. It returns whether that has changed. Callers hold mu.
func (b *Board) consent(now time.Time) (changed bool) {
	was := b.sent
	b.sent = b.flagsNow(now)
	switch {
	case b.sent&flagReady == 0:
		b.readySince, b.agreedSince = time.Time{}, time.Time{}
	case was&flagReady == 0:
		b.readySince = now
	}
	if b.sent&flagReady != 0 {
		all := true
		for _, p := range b.peers {
			all = all && (p.flags&flagReady != 0 || p.absent(now))
		}
		if !all {
			b.agreedSince = time.Time{}
		} else if b.agreedSince.IsZero() {
			b.agreedSince = now
		}
	}
	return b.sent != was
}

func (b *Board) flagsNow(now time.Time) byte {
	if !b.able {
		return 0
	}
	present := 0
	for _, p := range b.peers {
		if p.absent(now) {
			continue
		}
		present++
		r := p.best.Load()
		if p.flags&flagAble == 0 || r == nil || !r.live(now) || r.kind != LAN && r.kind != Direct {
			return flagAble
		}
	}
	if present == 0 {
		return flagAble
	}
	return flagAble | flagReady
}

// absent reports whether none of the peer's paths has answered for long.
func (p *peer) absent(now time.Time) bool {
	last := p.since
	for _, r := range p.routes {
		if r.answeredAt.After(last) {
			last = r.answeredAt
		}
	}
	return now.Sub(last) > absentAfter
}
