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

// roster keeps the peers of a tunnel: it makes them connect quickly and measures how long each has been silent.
//
// Connecting. When two WireGuard ends start a handshake at the same moment, both fail and try again only five seconds
// later, again at the same time; ends that one message wakes up do start at the same time. So the end with the lower
// public key calls and the other waits. A call is lost if the other end does not know the caller yet, so the caller
// calls again, by adding the peer again, at growing intervals; the call succeeds at the latest as long after both know
// each other as they learned of each other apart. Only if no call arrives for calledAfter does the other end call too,
// because the lower end may be unable to reach it.
//
// Repairing. Calls that crossed or were overtaken can leave a session that works in one direction only, and WireGuard
// does not notice before it renews keys two minutes later. An end that receives nothing from a peer it has met calls
// that peer again well before the silence counts as a loss.
//
// Silence. Only bytes that arrived under the peer's own keys count: nothing inside a container can forge or starve
// them. WireGuard's keepalive alone does not suffice: any packet, received or sent, restarts its timer, so of two idle
// ends only the quicker one ever sends. The roster therefore sends a packet to every peer every keepalive.
type roster struct {
	tun     tunnel
	self    wgtypes.Key
	changed chan struct{}        // signals that set was called
	near    func(netip.Addr) int // nil: all addresses are equally near

	mu    sync.Mutex
	peers map[wgtypes.Key]*watched
	beat  time.Time // when keepalives were last sent
}

const (
	firstGap    = 25 * time.Millisecond
	lastGap     = 3200 * time.Millisecond
	calledAfter = 2 * time.Second
	// muteCaller and mute are how long a peer that was met must be silent before this end calls it again, and the interval
	// between such calls, for the caller and for the other end. They are longer than a keepalive, shorter than
	// agentapi.PeerSilenceMS, and differ so that both ends do not call at once.
	muteCaller = 3 * time.Second
	mute       = 4500 * time.Millisecond
	restful    = 500 * time.Millisecond // interval between reads of the counters when nothing is due
)

type watched struct {
	peer      agentapi.Peer
	endpoints []netip.AddrPort
	turn      int // index of the endpoint in use

	caller bool          // our key is the lower one
	called bool          // whether we may call; always true for the caller
	due    time.Time     // earliest time of the next call
	gap    time.Duration // delay until the call after that
	met    bool          // whether a handshake was completed

	rx       int64
	received bool
	since    bool      // whether bytes have arrived in the present tunnel
	quiet    time.Time // when bytes last arrived, or when the peer was set
	// deafFrom and deafTo delimit the last completed silence that was longer than agentapi.PeerSilenceMS; zero if there
	// was none.
	deafFrom, deafTo time.Time
}

func newRoster(t tunnel, self wgtypes.Key) *roster {
	return &roster{tun: t, self: self, changed: make(chan struct{}, 1), peers: map[wgtypes.Key]*watched{}}
}

// set replaces the peers. Peers without a key are skipped. If one of them is invalid, nothing changes. resume means
// that an earlier process met these peers already: there is no simultaneous start to avoid, and all of them are called
// at once.
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
		if r.near != nil { // addresses on the requested path or in this host's own networks are tried first
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

// replace sends the differences to the device: removals first, so that an address can move to another key. It also
// removes peers that the device has from an earlier process and that are no longer wanted.
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

// placesOf returns one peer in the form that meet takes.
func placesOf(key wgtypes.Key, w *watched) map[wgtypes.Key]*agentapi.Peer {
	return map[wgtypes.Key]*agentapi.Peer{key: &w.peer}
}

// change returns the peer in the form that the device takes. With a keepalive the device calls it at once.
func (w *watched) change(key wgtypes.Key) peerChange {
	addr := netip.MustParseAddr(w.peer.Address)
	c := peerChange{key: key, address: netip.PrefixFrom(addr, addr.BitLen()), keepalive: w.called}
	if len(w.endpoints) > 0 {
		c.endpoint = w.endpoints[w.turn]
	}
	return c
}

// tick reads the counters and does what is due. It returns the delay until it should be called again.
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

// act does what is due for one peer.
func (w *watched) act(key wgtypes.Key, now time.Time) []peerChange {
	switch {
	case w.met && !w.called: // the peer called us
		w.called = true
		return []peerChange{{key: key, keepalive: true}}
	case !w.met && !w.called && !now.Before(w.due): // the peer should have called
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

// recall adds the peer again, at its next endpoint, which makes the device call it at once.
func (w *watched) recall(key wgtypes.Key) []peerChange {
	if len(w.endpoints) > 1 {
		w.turn = (w.turn + 1) % len(w.endpoints)
	}
	w.rx = 0
	return []peerChange{{key: key, remove: true}, w.change(key)}
}

// count stores what the counters say.
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
			w.received, w.since = true, true
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
