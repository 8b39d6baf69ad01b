package overlay

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/internal/agentapi"
)

// roster keeps the peers of a tunnel: it makes them meet quickly and knows how long each has been silent.
//
// Meeting. Two WireGuard ends that start a handshake at the same moment both fail, and try again only five seconds
// later, again together; ends that are woken by one message do start together. So the end with the lower public key
// calls and the other waits to be called. A call before the other end knows the caller is lost, so the caller calls
// again, by adding the peer anew, at growing gaps: it comes through at latest as long after both know each other as
// they were apart. Only if nobody called for calledAfter does the other end call too (the lower one may not reach it).
//
// Mending. Calls that crossed, or were overtaken on the way, can leave a session that works in one direction only, and
// WireGuard does not notice before it renews keys two minutes later. An end that hears nothing from a peer it has met
// calls it anew well before the silence counts as a loss.
//
// Silence. What counts is bytes that came through the peer's own keys: nothing inside a container can forge or starve
// that. WireGuard's keepalive alone does not do: any packet, received or sent, restarts its timer, so of two idle ends
// only the quicker one ever sends. The roster sends one to every peer every keepalive itself.
type roster struct {
	tun     tunnel
	self    wgtypes.Key
	changed chan struct{}        // set was called: tick soon
	near    func(netip.Addr) int // nil: all addresses are as near

	mu    sync.Mutex
	peers map[wgtypes.Key]*watched
	beat  time.Time // keepalives were last sent
}

const (
	firstGap    = 25 * time.Millisecond
	lastGap     = 3200 * time.Millisecond
	calledAfter = 2 * time.Second
	// muteCaller and mute are after how much silence of a peer it has met an end calls it anew, and how often: more
	// than a keepalive, less than agentapi.PeerSilenceMS, and not both ends at once.
	muteCaller = 3 * time.Second
	mute       = 4500 * time.Millisecond
	restful    = 500 * time.Millisecond // between looks at the counters when nothing is due
)

type watched struct {
	peer      agentapi.Peer
	endpoints []netip.AddrPort
	turn      int // index of the endpoint in use

	caller bool          // ours is the lower key
	called bool          // we may call: always for the caller
	due    time.Time     // not to be called anew before
	gap    time.Duration // before the one after it
	met    bool          // a handshake was completed

	rx       int64
	received bool
	quiet    time.Time // bytes last came, or the peer was set
	// deafFrom and deafTo are the last silence of longer than agentapi.PeerSilenceMS that has ended; zero: there was none.
	deafFrom, deafTo time.Time
}

func newRoster(t tunnel, self wgtypes.Key) *roster {
	return &roster{tun: t, self: self, changed: make(chan struct{}, 1), peers: map[wgtypes.Key]*watched{}}
}

// set replaces the peers. Those without a key are left out. Nothing changes when one of them makes no sense. resume
// says that these peers were met by a former process: there is no rush to avoid, and every one is called at once.
func (r *roster) set(peers []agentapi.Peer, resume bool, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := map[wgtypes.Key]*watched{}
	for _, p := range peers {
		if p.Key == "" {
			continue
		}
		key, err := peerKey(p)
		if err != nil {
			return err
		}
		w, err := newWatched(p, now)
		if err != nil {
			return err
		}
		if r.near != nil { // those on the way there that was asked for, or in a network of this host's, are tried first
			slices.SortStableFunc(w.endpoints, func(a, b netip.AddrPort) int {
				return cmp.Compare(r.near(a.Addr()),
					r.near(b.Addr()))
			})
		}
		w.caller = bytes.Compare(r.self[:], key[:]) < 0
		w.called = w.caller || resume
		w.due, w.gap = now.Add(firstGap), firstGap
		if !w.called {
			w.due = now.Add(calledAfter)
		}
		wanted[key] = w
	}
	return r.replace(wanted)
}

func newWatched(p agentapi.Peer, now time.Time) (*watched, error) {
	w := &watched{peer: p, quiet: now}
	if _, err := netip.ParseAddr(p.Address); err != nil {
		return nil, fmt.Errorf("rank %d's address %q is none", p.Rank, p.Address)
	}
	for _, e := range p.Endpoints {
		ap, err := netip.ParseAddrPort(e)
		if err != nil {
			return nil, fmt.Errorf("rank %d's endpoint %q is no IP address and port", p.Rank, e)
		}
		w.endpoints = append(w.endpoints, ap)
	}
	return w, nil
}

// replace tells the device what changes: removals first, so that an address can move to another key. A peer the device
// knows from a former process and nobody wants is removed too.
func (r *roster) replace(wanted map[wgtypes.Key]*watched) error {
	known, err := r.tun.counters()
	if err != nil {
		return err
	}
	var gone, set []peerChange
	for key := range known {
		if wanted[key] == nil {
			gone = append(gone, peerChange{key: key, remove: true})
		}
	}
	for key, w := range wanted {
		if old := r.peers[key]; old != nil && same(old.peer, w.peer) {
			wanted[key] = old
			continue
		}
		w.rx = known[key].rx
		set = append(set, w.change(key))
	}
	places := map[wgtypes.Key]*agentapi.Peer{}
	for _, c := range gone {
		places[c.key] = nil
	}
	for _, c := range set {
		places[c.key] = &wanted[c.key].peer
	}
	if err := r.tun.meet(places); err != nil {
		return err
	}
	if changes := append(gone, set...); len(changes) > 0 {
		if err := r.tun.apply(changes); err != nil {
			return err
		}
	}
	r.peers = wanted
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return nil
}

func same(a, b agentapi.Peer) bool {
	return a.Rank == b.Rank && a.Address == b.Address && a.Key == b.Key && slices.Equal(a.Endpoints, b.Endpoints)
}

// change is the peer as the device is told of it. With its keepalive it is called at once.
func (w *watched) change(key wgtypes.Key) peerChange {
	addr := netip.MustParseAddr(w.peer.Address)
	c := peerChange{key: key, address: netip.PrefixFrom(addr, addr.BitLen()), keepalive: w.called}
	if len(w.endpoints) > 0 {
		c.endpoint = w.endpoints[w.turn]
	}
	return c
}

// tick looks at the counters and does what is due. It returns after how long it wants to be called again.
func (r *roster) tick(now time.Time) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.count(now); err != nil {
		return restful, err
	}
	next := restful
	var changes []peerChange
	var beat []wgtypes.Key
	for key, w := range r.peers {
		changes = append(changes, w.act(key, now)...)
		if !w.met {
			next = min(next, max(w.due.Sub(now), time.Millisecond))
		}
		if w.called && w.met {
			beat = append(beat, key)
		}
	}
	if len(changes) > 0 {
		if err := r.tun.apply(changes); err != nil {
			return restful, err
		}
	}
	if now.Sub(r.beat) >= keepalive {
		r.beat = now
		return next, r.tun.beat(beat)
	}
	return next, nil
}

// act is what is due for one peer.
func (w *watched) act(key wgtypes.Key, now time.Time) []peerChange {
	switch {
	case w.met && !w.called: // it called us
		w.called = true
		return []peerChange{{key: key, keepalive: true}}
	case !w.met && !w.called && !now.Before(w.due): // it should have
		w.called = true
		w.due = now.Add(lastGap)
		return []peerChange{{key: key, keepalive: true}}
	case !w.met && w.caller && !now.Before(w.due):
		w.gap = min(2*w.gap, lastGap)
		w.due = now.Add(w.gap)
		return w.recall(key)
	case !w.met && !now.Before(w.due):
		w.due = now.Add(lastGap)
	case w.met && now.Sub(w.quiet) > w.patience() && !now.Before(w.due):
		w.due = now.Add(w.patience())
		return w.recall(key)
	}
	return nil
}

func (w *watched) patience() time.Duration {
	if w.caller {
		return muteCaller
	}
	return mute
}

// recall adds the peer anew, at its next endpoint: that calls it at once.
func (w *watched) recall(key wgtypes.Key) []peerChange {
	if len(w.endpoints) > 1 {
		w.turn = (w.turn + 1) % len(w.endpoints)
	}
	w.rx = 0
	return []peerChange{{key: key, remove: true}, w.change(key)}
}

// count takes the counters in.
func (r *roster) count(now time.Time) (map[wgtypes.Key]counter, error) {
	counters, err := r.tun.counters()
	if err != nil {
		return nil, err
	}
	for key, w := range r.peers {
		c := counters[key]
		if c.rx > w.rx {
			if now.Sub(w.quiet).Milliseconds() > agentapi.PeerSilenceMS {
				w.deafFrom, w.deafTo = w.quiet, now
			}
			w.received = true
			w.quiet = now
		}
		w.rx = c.rx
		w.met = w.met || !c.handshake.IsZero()
	}
	return counters, nil
}

func (r *roster) status(now time.Time) ([]PeerStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counters, err := r.count(now)
	if err != nil {
		return nil, err
	}
	known := r.tun.paths()
	out := make([]PeerStatus, 0, len(r.peers))
	for key, w := range r.peers {
		c := counters[key]
		s := PeerStatus{
			Rank: w.peer.Rank, Key: w.peer.Key, Endpoint: c.endpoint, RxBytes: c.rx, TxBytes: c.tx,
			LastHandshake: c.handshake, SilentMS: now.Sub(w.quiet).Milliseconds(), Received: w.received,
		}
		if !w.deafTo.IsZero() {
			s.DeafFromMS, s.DeafToMS = now.Sub(w.deafFrom).Milliseconds(), now.Sub(w.deafTo).Milliseconds()
		}
		if p, ok := known[key]; ok {
			s.Path, s.RTTMicros, s.MTU = p.Kind, p.RTT.Microseconds(), p.MTU
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.Rank, b.Rank) })
	return out, nil
}
