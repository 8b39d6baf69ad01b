// Package relay carries datagrams between ranks that cannot reach each other.
//
// Invariants:
//   - It carries datagrams only between ranks of one cluster that have presented tokens of the control plane, each from
//     an address that it has proven to own, and only while the tokens are valid: they end with the leases, and are
//     renewed while those run. The relay uses its clock as it is; the tokens include a margin for wrong clocks. What it
//     carries is encrypted end to end by keys that it never sees.
//   - It stores only the addresses of ranks, in memory; ranks repeat their hello every few seconds. A relay may end at
//     any moment, and any number of relays may run: they do not know of each other.
//   - It never sends more than it received, and each rank has a rate limit, so none takes more than its share.
package relay

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv6"
	"golang.org/x/time/rate"

	"github.com/musterhq/muster/internal/agentapi"
)

// Config configures a Relay.
type Config struct {
	Listen   string           // UDP host:port to listen on
	Secret   []byte           // shared with the control plane
	RateMbps int              // rate limit of one rank, Mbit/s; 0 = 2000
	Now      func() time.Time // nil = time.Now
	Log      *slog.Logger
}

const (
	defaultRate = 2000
	// keep is how long a silent rank is remembered: several of its refresh intervals.
	keep = 30 * time.Second
	// maxSessions limits memory: a session takes about 300 bytes.
	maxSessions = 200_000
	batch       = 64
	packetSize  = 1 << 14
	cookieLife  = 2 * time.Minute
	// reachRate is how many hosts per second the relay tries to reach.
	reachRate = 200
)

// Relay is a running relay.
type Relay struct {
	cfg     Config
	conn    *net.UDPConn
	batches *ipv6.PacketConn // the same calls serve IPv4 sockets
	boot    []byte           // makes cookies
	outward *net.UDPConn     // sends to hosts that want to know whether they can be reached
	reaches *rate.Limiter

	mu     sync.RWMutex
	byAddr map[netip.AddrPort]*session
	byRank map[place]*session

	count counters
	done  sync.WaitGroup
	stop  context.CancelFunc
}

type place struct {
	cluster [16]byte
	rank    uint16
}

type session struct {
	place place
	epoch uint32
	addr  netip.AddrPort
	until time.Time // silent for too long, or its token has ended; guarded by Relay.mu
	limit *rate.Limiter
}

// Start listens and serves until Close.
func Start(cfg Config) (*Relay, error) {
	if len(cfg.Secret) < 32 {
		return nil, errors.New("the relay's secret is too short")
	}
	if cfg.RateMbps == 0 {
		cfg.RateMbps = defaultRate
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	lc := net.ListenConfig{}
	pc, err := lc.ListenPacket(context.Background(), "udp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	r := &Relay{
		cfg:    cfg,
		conn:   pc.(*net.UDPConn),
		boot:   make([]byte, 32),
		byAddr: map[netip.AddrPort]*session{},
		byRank: map[place]*session{},
	}
	if _, err := rand.Read(r.boot); err != nil {
		r.conn.Close()
		return nil, err
	}
	if r.outward, err = net.ListenUDP("udp", &net.UDPAddr{IP: r.conn.LocalAddr().(*net.UDPAddr).IP}); err != nil {
		r.conn.Close()
		return nil, fmt.Errorf("open a second socket: %w", err)
	}
	r.reaches = rate.NewLimiter(reachRate, reachRate)
	tune(r.conn)
	r.batches = ipv6.NewPacketConn(r.conn)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.done.Go(r.serve)
	r.done.Go(func() { r.forgetLoop(ctx) })
	return r, nil
}

// Addr returns the address that it listens on.
func (r *Relay) Addr() netip.AddrPort { return r.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Close stops the relay. Hosts find other paths.
func (r *Relay) Close(context.Context) error {
	r.stop()
	err := errors.Join(r.conn.Close(), r.outward.Close())
	r.done.Wait()
	return err
}

func (r *Relay) serve() {
	in, out := messages(), messages()
	for {
		n, err := r.batches.ReadBatch(in, 0)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			r.cfg.Log.Warn("relay: read", "err", err)
			continue
		}
		send := out[:0]
		for i := range n {
			from := in[i].Addr.(*net.UDPAddr).AddrPort()
			from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			if answer, to := r.handle(in[i].Buffers[0][:in[i].N], from); answer != nil {
				m := &send[:len(send)+1][len(send)]
				m.Buffers[0], m.Addr = answer, net.UDPAddrFromAddrPort(to)
				send = send[:len(send)+1]
			}
		}
		r.write(send)
	}
}

func messages() []ipv6.Message {
	m := make([]ipv6.Message, batch)
	for i := range m {
		m[i].Buffers = net.Buffers{make([]byte, packetSize)}
	}
	return m
}

// write sends the queued datagrams; one that cannot be sent is lost, as any datagram may be.
func (r *Relay) write(out []ipv6.Message) {
	for len(out) > 0 {
		n, err := r.batches.WriteBatch(out, 0)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			r.count.drop("send")
			n = 1
		}
		out = out[max(n, 1):]
	}
}

// handle returns the reply to a datagram. It modifies a carried packet in place.
func (r *Relay) handle(b []byte, from netip.AddrPort) (answer []byte, to netip.AddrPort) {
	switch agentapi.RelayKind(b) {
	case agentapi.RelayTo:
		return r.carry(b, from)
	case agentapi.RelayHello:
		return r.hello(b, from), from
	case agentapi.RelayReach:
		return r.reach(b, from), from
	}
	r.count.drop("malformed")
	return nil, to
}

func (r *Relay) carry(b []byte, from netip.AddrPort) ([]byte, netip.AddrPort) {
	if len(b) <= agentapi.RelayHeader {
		r.count.drop("malformed")
		return nil, from
	}
	now := r.cfg.Now()
	r.mu.RLock()
	s := r.byAddr[from].at(now)
	var to *session
	if s != nil {
		to = r.byRank[place{s.place.cluster, agentapi.RelayRank(b)}].at(now)
	}
	r.mu.RUnlock()
	switch {
	case s == nil:
		r.count.drop("unknown")
	case to == nil || to == s:
		r.count.drop("absent")
	case !s.limit.AllowN(now, len(b)):
		r.count.drop("rate")
	default:
		agentapi.PutRelayHeader(b, agentapi.RelayFrom, s.place.rank)
		r.count.packets.Add(1)
		r.count.bytes.Add(uint64(len(b)))
		return b, to.addr
	}
	return nil, from
}

// at returns the session if it is still valid, else nil. Callers hold Relay.mu.
func (s *session) at(now time.Time) *session {
	if s == nil || now.After(s.until) {
		return nil
	}
	return s
}

func (r *Relay) hello(b []byte, from netip.AddrPort) []byte {
	cookie, ok := agentapi.HelloCookie(b)
	if !ok {
		r.count.drop("malformed")
		return nil
	}
	now := r.cfg.Now()
	if answer := r.challenge(cookie, from, now); answer != nil {
		return answer
	}
	c, err := agentapi.CheckHello(r.cfg.Secret, b)
	if err != nil || now.After(c.Expires) {
		r.count.drop("token")
		return nil
	}
	if !r.admit(c, from, now) {
		return nil
	}
	return agentapi.Welcome(from)
}

// challenge returns the answer to a message without the cookie of its source address; nil if it has it.
func (r *Relay) challenge(cookie [agentapi.RelayCookieSize]byte, from netip.AddrPort, now time.Time) []byte {
	want := r.cookie(from, now)
	if hmac.Equal(cookie[:], want[:]) {
		return nil
	}
	if before := r.cookie(from, now.Add(-cookieLife)); hmac.Equal(cookie[:], before[:]) {
		return nil
	}
	return agentapi.Challenge(want)
}

// reach sends to another port of a host that asks for it. The host has proven the address by its cookie, and gets less
// than it sent, so no one else can be flooded. It is sent from a port to which the host has sent nothing: a firewall
// that lets in answers only drops it.
func (r *Relay) reach(b []byte, from netip.AddrPort) []byte {
	cookie, port, nonce, ok := agentapi.ReadReach(b)
	if !ok || port < 1024 {
		r.count.drop("malformed")
		return nil
	}
	now := r.cfg.Now()
	if answer := r.challenge(cookie, from, now); answer != nil {
		return answer
	}
	if !r.reaches.AllowN(now, 1) {
		r.count.drop("rate")
		return nil
	}
	if _, err := r.outward.WriteToUDPAddrPort(agentapi.Reached(nonce), netip.AddrPortFrom(from.Addr(), port)); err != nil {
		r.count.drop("send")
	}
	return nil
}

func (r *Relay) admit(c agentapi.RelayClaims, from netip.AddrPort, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := place{c.Cluster, c.Rank}
	until := now.Add(keep)
	if c.Expires.Before(until) {
		until = c.Expires
	}
	s := r.byRank[p]
	switch {
	case s == nil && len(r.byRank) >= maxSessions:
		r.count.drop("full")
		return false
	case s != nil && c.Epoch < s.epoch:
		r.count.drop("epoch")
		return false
	case s == nil:
		bytes := float64(r.cfg.RateMbps) * 1e6 / 8
		s = &session{limit: rate.NewLimiter(rate.Limit(bytes), int(bytes/4)+packetSize)}
	case s.addr != from || s.epoch != c.Epoch:
		next := *s // carry reads sessions without the lock: they are replaced, not modified
		s = &next
	default:
		s.until = until
		return true
	}
	if old := r.byRank[p]; old != nil {
		delete(r.byAddr, old.addr)
	}
	if other := r.byAddr[from]; other != nil {
		delete(r.byRank, other.place)
	}
	s.place, s.epoch, s.addr, s.until = p, c.Epoch, from, until
	r.byRank[p], r.byAddr[from] = s, s
	return true
}

// cookie returns the cookie of an address, which is valid for a while.
func (r *Relay) cookie(a netip.AddrPort, now time.Time) (c [agentapi.RelayCookieSize]byte) {
	h := hmac.New(sha256.New, r.boot)
	h.Write(agentapi.AppendAddress(nil, a))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(now.Unix()/int64(cookieLife.Seconds()))))
	copy(c[:], h.Sum(nil))
	return c
}

func (r *Relay) forgetLoop(ctx context.Context) {
	tick := time.NewTicker(keep / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.forget(r.cfg.Now())
		}
	}
}

func (r *Relay) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, s := range r.byRank {
		if now.After(s.until) {
			delete(r.byRank, p)
			delete(r.byAddr, s.addr)
		}
	}
}
