package paths

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/internal/agentapi"
)

// A message between two hosts consists of magic, kind, the sender's tag, a nonce, a body, padding, and a MAC over all
// of these.
//
//	question: body is a count, as many addresses at which the sender was seen, and what the sender says about leaving
//	          the board (see consent), which older ends omit
//	answer:   the question's nonce; body is the address that the question came from
const (
	kindPing   = 16
	kindAnswer = 17
	headSize   = 4 + 8 + 8
	proofSize  = 16
	maxSeen    = 6
)

type (
	tag   [8]byte
	nonce [8]byte
)

// question is a probe that waits for its reply.
type question struct {
	way  way
	at   time.Time
	size int // size of the overlay packet that it stands for; 0: not a size probe
}

// PairKey is the key that two ends share without exchanging it: each derives it from its own private key and the
// other's public key.
func PairKey(own, theirs wgtypes.Key) ([]byte, error) {
	private, err := ecdh.X25519().NewPrivateKey(own[:])
	if err != nil {
		return nil, err
	}
	public, err := ecdh.X25519().NewPublicKey(theirs[:])
	if err != nil {
		return nil, err
	}
	shared, err := private.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("the peer's key is no key: %w", err)
	}
	return sum(shared, []byte("muster-path-v1")), nil
}

func sum(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func tagOf(pair []byte, sender wgtypes.Key) tag { return tag(sum(pair, []byte("tag"), sender[:])[:8]) }

func (p *peer) message(kind byte, n nonce, body []byte, size int) []byte {
	m := agentapi.RelayMagic
	out := append(make([]byte, 0, max(size, headSize+len(body)+proofSize)), m[0], m[1], m[2], kind)
	out = append(append(append(out, p.ours[:]...), n[:]...), body...)
	if pad := size - len(out) - proofSize; pad > 0 {
		out = append(out, make([]byte, pad)...)
	}
	return append(out, sum(p.pair, out)[:proofSize]...)
}

// ping builds a probe for a path. If size > 0 the probe is as large as an overlay packet of that size would be on the
// path.
func (p *peer) ping(r *route, seen []netip.AddrPort, size int, now time.Time) []byte {
	var n nonce
	_, _ = rand.Read(n[:])
	p.pending[n] = question{r.way, now, size}
	body := []byte{byte(min(len(seen), maxSeen))}
	for _, a := range seen[:min(len(seen), maxSeen)] {
		body = agentapi.AppendAddress(body, a)
	}
	body = append(body, p.b.sent)
	if size > 0 {
		size += Tunnelling
	}
	return p.message(kindPing, n, body, size)
}

// handleMessage handles a message from a peer.
func (b *Board) handleMessage(t *table, msg []byte, w way) {
	if len(msg) < headSize+proofSize+1 {
		return
	}
	p := t.tags[tag(msg[4:12])]
	at := len(msg) - proofSize
	if p == nil || !hmac.Equal(msg[at:], sum(p.pair, msg[:at])[:proofSize]) {
		return
	}
	n, body := nonce(msg[12:headSize]), msg[headSize:at]
	switch msg[3] {
	case kindPing:
		b.receivePing(p, n, body, w)
	case kindAnswer:
		b.learned(p, n, w)
	}
}

// receivePing replies on the path that the probe came by, and stores the peer's address and the addresses at which it
// was seen.
func (b *Board) receivePing(p *peer, n nonce, body []byte, w way) {
	now := time.Now()
	b.mu.Lock()
	if b.peers[p.key] != p {
		b.mu.Unlock()
		return
	}
	fresh := p.add(w, false, now)
	count := int(body[0])
	for i := range min(count, maxSeen) {
		at := 1 + i*agentapi.AddressSize
		if at+agentapi.AddressSize > len(body) {
			break
		}
		fresh = p.add(way{addr: agentapi.AddressAt(body[at:])}, false, now) || fresh
	}
	p.flags, p.reported = 0, true
	if at := 1 + count*agentapi.AddressSize; at < len(body) {
		p.flags = body[at]
	}
	r := p.routes[w]
	if fresh {
		b.rebuild()
		b.poke() // probe back at once: the peer's router has just let us in
	}
	rank := p.rank
	b.mu.Unlock()
	if r != nil {
		_ = b.sendMessage(r, rank, p.message(kindAnswer, n, agentapi.AppendAddress(nil, w.addr), 0))
	}
}

// learned handles the reply to one of our probes. A reply that arrives by another path than its probe proves nothing.
func (b *Board) learned(p *peer, n nonce, w way) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	q, ok := p.pending[n]
	r := p.routes[w]
	if !ok || q.way != w || r == nil || b.peers[p.key] != p {
		return
	}
	delete(p.pending, n)
	r.answeredAt, r.rtt = now, now.Sub(q.at)
	r.broken.Store(false)
	if q.size > 0 {
		r.climb.Passed(q.size, r.room(), now)
	}
	if p.best.Load() == nil || p.best.Load() != r {
		p.choose(now)
	}
	b.poke()
}
