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

// Between two hosts: magic, kind, the sender's tag, a nonce, a body, padding, and a proof of all that.
//
//	question: body is a count and as many addresses the sender was seen at
//	answer:   the question's nonce; body is the address the question came from
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

// question is one that waits for its answer.
type question struct {
	way  way
	at   time.Time
	size int // of the overlay packet it stands for; 0 = no probe
}

// pairKey is the key two ends share without a word: each makes it of its own private and the other's public key.
func pairKey(own, theirs wgtypes.Key) ([]byte, error) {
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

// ping makes a question over a way. size > 0 makes it as large as an overlay packet of that size would be on the way.
func (p *peer) ping(r *route, seen []netip.AddrPort, size int, now time.Time) []byte {
	var n nonce
	_, _ = rand.Read(n[:])
	p.pending[n] = question{r.way, now, size}
	body := []byte{byte(min(len(seen), maxSeen))}
	for _, a := range seen[:min(len(seen), maxSeen)] {
		body = agentapi.AppendAddress(body, a)
	}
	if size > 0 {
		size += tunnelling
	}
	return p.message(kindPing, n, body, size)
}

// handleMessage takes in a message of a peer's.
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

// receivePing answers, the way it came, and learns where the peer is and was seen.
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
	r := p.routes[w]
	if fresh {
		b.rebuild()
		b.poke() // ask back at once: their router has just opened
	}
	rank := p.rank
	b.mu.Unlock()
	if r != nil {
		_ = b.sendMessage(r, rank, p.message(kindAnswer, n, agentapi.AppendAddress(nil, w.addr), 0))
	}
}

// learned takes an answer to one of our questions. One that comes another way than it was asked proves nothing.
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
		r.climb.passed(r, q.size, now)
	}
	if p.best.Load() == nil || p.best.Load() != r {
		p.choose(now)
	}
	b.poke()
}
