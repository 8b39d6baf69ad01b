package agentapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// A relay carries datagrams between ranks of a cluster that cannot reach each other. It sees WireGuard's packets and no
// keys, needs no database, and identifies a rank by a token that the control plane has given its host.
//
// Messages are UDP datagrams that begin with three fixed bytes and a kind; WireGuard's own begin with 1 to 4 and three
// zeros, so both share a socket. A rank sends a Hello, which proves its token. The relay answers a Hello without the
// cookie of its source address with that cookie and nothing else, so that no one can use another's address.
const (
	RelayHello     = 1 // host → relay: cookie, claims, padding, proof
	RelayChallenge = 2 // relay → host: cookie
	RelayWelcome   = 3 // relay → host: the address at which the relay sees the host
	RelayTo        = 4 // host → relay: rank, packet
	RelayFrom      = 5 // relay → host: rank, packet
	RelayReach     = 6 // host → relay: cookie, port, nonce, padding; without a token
	RelayReached   = 7 // relay → that port of the sender's address, from a port of its own: nonce
	// Kinds from 16 on are used between hosts.
)

// These are sizes in bytes.
const (
	RelayHeader     = 8 // magic, kind, rank, two zeros: before a carried packet
	RelayCookieSize = 16
	relayClaims     = 16 + 2 + 4 + 8
	relayProof      = 16
	relayHelloSize  = 128 // longer than any reply, so a relay cannot amplify a flood
)

// RelayMagic begins every message of a relay or a path.
var RelayMagic = [3]byte{'M', 's', 'R'}

// RelayKind returns a message's kind; 0 for WireGuard's and others'.
func RelayKind(b []byte) byte {
	if len(b) < 4 || [3]byte(b[:3]) != RelayMagic {
		return 0
	}
	return b[3]
}

// RelayClaims identify the rank that a token is for.
type RelayClaims struct {
	Cluster [16]byte
	Rank    uint16
	Epoch   uint32    // lower values than already seen are refused
	Expires time.Time // in seconds of the control plane's clock
}

func (c RelayClaims) bytes() []byte {
	b := append(make([]byte, 0, relayClaims), c.Cluster[:]...)
	b = binary.BigEndian.AppendUint16(b, c.Rank)
	b = binary.BigEndian.AppendUint32(b, c.Epoch)
	return binary.BigEndian.AppendUint64(b, uint64(c.Expires.Unix()))
}

func claimsOf(b []byte) RelayClaims {
	return RelayClaims{
		Cluster: [16]byte(b[:16]),
		Rank:    binary.BigEndian.Uint16(b[16:]),
		Epoch:   binary.BigEndian.Uint32(b[18:]),
		Expires: time.Unix(int64(binary.BigEndian.Uint64(b[22:])), 0),
	}
}

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// RelayToken authenticates a host to relays. Secret.
type RelayToken struct {
	claims []byte
	key    []byte
}

// NewRelayToken returns the token for claims. secret is shared by the control plane and its relays.
func NewRelayToken(secret []byte, c RelayClaims) RelayToken {
	b := c.bytes()
	return RelayToken{b, mac(secret, []byte("muster-relay-v1"), b)}
}

// Text encodes the token for a message to the host.
func (t RelayToken) Text() string {
	return base64.RawURLEncoding.EncodeToString(append(append([]byte(nil), t.claims...), t.key...))
}

// ParseRelayToken is the inverse of Text.
func ParseRelayToken(s string) (RelayToken, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != relayClaims+sha256.Size {
		return RelayToken{}, errors.New("not a relay's token")
	}
	return RelayToken{b[:relayClaims], b[relayClaims:]}, nil
}

// Hello returns the message that presents the token.
func (t RelayToken) Hello(cookie [RelayCookieSize]byte) []byte {
	b := append(make([]byte, 0, relayHelloSize), RelayMagic[0], RelayMagic[1], RelayMagic[2], RelayHello)
	b = append(append(b, cookie[:]...), t.claims...)
	b = b[:relayHelloSize-relayProof]
	return append(b, mac(t.key, b)[:relayProof]...)
}

// HelloCookie returns the cookie in a Hello; ok is false if the message is not one.
func HelloCookie(b []byte) (cookie [RelayCookieSize]byte, ok bool) {
	if len(b) != relayHelloSize || RelayKind(b) != RelayHello {
		return cookie, false
	}
	return [RelayCookieSize]byte(b[4:]), true
}

// CheckHello verifies a Hello's proof and returns its claims.
func CheckHello(secret, b []byte) (RelayClaims, error) {
	if _, ok := HelloCookie(b); !ok {
		return RelayClaims{}, errors.New("not a hello")
	}
	c := claimsOf(b[4+RelayCookieSize:])
	key := NewRelayToken(secret, c).key
	at := len(b) - relayProof
	if !hmac.Equal(b[at:], mac(key, b[:at])[:relayProof]) {
		return RelayClaims{}, errors.New("the token is not ours")
	}
	return c, nil
}

// RelayNonceSize is the size of the number by which a host recognises the answer to its Reach.
const RelayNonceSize = 16

// Reach returns the message that asks a relay to send to another port of the host, to which the host has sent nothing:
// what arrives there shows that other hosts can reach this one.
func Reach(cookie [RelayCookieSize]byte, port uint16, nonce [RelayNonceSize]byte) []byte {
	b := append(make([]byte, 0, relayHelloSize), RelayMagic[0], RelayMagic[1], RelayMagic[2], RelayReach)
	b = binary.BigEndian.AppendUint16(append(b, cookie[:]...), port)
	return append(b, nonce[:]...)[:relayHelloSize]
}

// ReadReach is the inverse of Reach; ok is false if the message is not one.
func ReadReach(b []byte) (cookie [RelayCookieSize]byte, port uint16, nonce [RelayNonceSize]byte, ok bool) {
	if len(b) != relayHelloSize || RelayKind(b) != RelayReach {
		return cookie, 0, nonce, false
	}
	at := 4 + RelayCookieSize
	return [RelayCookieSize]byte(b[4:]), binary.BigEndian.Uint16(b[at:]), [RelayNonceSize]byte(b[at+2:]), true
}

// Reached returns the message that a relay sends to the port of a Reach.
func Reached(nonce [RelayNonceSize]byte) []byte {
	return append([]byte{RelayMagic[0], RelayMagic[1], RelayMagic[2], RelayReached}, nonce[:]...)
}

// Challenge returns the answer to a Hello, or a Reach, without its cookie.
func Challenge(cookie [RelayCookieSize]byte) []byte {
	return append([]byte{RelayMagic[0], RelayMagic[1], RelayMagic[2], RelayChallenge}, cookie[:]...)
}

// Welcome returns the answer to a proven Hello.
func Welcome(seen netip.AddrPort) []byte {
	return AppendAddress([]byte{RelayMagic[0], RelayMagic[1], RelayMagic[2], RelayWelcome}, seen)
}

// AddressSize is the size of an address in a message, in bytes.
const AddressSize = 18

// AppendAddress appends an address and port.
func AppendAddress(b []byte, a netip.AddrPort) []byte {
	ip := a.Addr().As16()
	return binary.BigEndian.AppendUint16(append(b, ip[:]...), a.Port())
}

// AddressAt decodes an address and port from the first AddressSize bytes.
func AddressAt(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), binary.BigEndian.Uint16(b[16:]))
}

// PutRelayHeader writes the header of a carried packet into the first RelayHeader bytes.
func PutRelayHeader(b []byte, kind byte, rank uint16) {
	b[0], b[1], b[2], b[3] = RelayMagic[0], RelayMagic[1], RelayMagic[2], kind
	binary.BigEndian.PutUint16(b[4:], rank)
	b[6], b[7] = 0, 0
}

// RelayRank returns the rank in the header of a carried packet.
func RelayRank(b []byte) uint16 { return binary.BigEndian.Uint16(b[4:]) }
