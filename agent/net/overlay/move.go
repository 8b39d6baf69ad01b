package overlay

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// An overlay begins in userspace, whose board finds and proves the paths to the peers. When all ends have proven to
// each other that packets arrive without help, all of them move to the kernel's WireGuard, if they have it: it is
// faster, and needs no process. An end moves back when it must find paths again.

// silentFor is how long a peer that was received from must be silent before this end looks for other paths to it. Until
// then the roster tries the peer's other addresses.
const silentFor = 12 * time.Second

// move moves the tunnel if that is due. An error means that there is no tunnel any more.
func (p *process) move(now time.Time) error {
	switch t := p.tun.(type) {
	case *userspace:
		if at := t.board.Agreed(now); at != nil {
			return p.toKernel(at, now)
		}
	case *kernel:
		if why := p.roster.lost(p.moved, now); why != "" {
			fmt.Fprintln(os.Stderr, "back to userspace:", why)
			return p.toUserspace(now)
		}
	}
	return nil
}

// moving reports whether the tunnel may still move soon.
func (p *process) moving() bool {
	u, ok := p.tun.(*userspace)
	return ok && u.board.Undecided(time.Now())
}

func (p *process) toKernel(at map[wgtypes.Key]netip.AddrPort, now time.Time) error {
	p.memory.Lock()
	defer p.memory.Unlock()
	if err := p.leave(); err != nil {
		return err
	}
	k, err := openKernel(p.where())
	if err == nil {
		return p.take(k, at, now)
	}
	fmt.Fprintln(os.Stderr, "the kernel's WireGuard is not used:", err)
	p.able = false
	u, err := openUserspace(p.where())
	if err != nil {
		return err
	}
	return p.take(u, nil, now)
}

func (p *process) toUserspace(now time.Time) error {
	p.memory.Lock()
	defer p.memory.Unlock()
	if err := p.leave(); err != nil {
		return err
	}
	u, err := openUserspace(p.where())
	if err != nil {
		return err
	}
	return p.take(u, nil, now)
}

// leave ends the present tunnel's part. Callers hold memory.
func (p *process) leave() error {
	if k, ok := p.tun.(*kernel); ok {
		if _, err := k.counters(); err != nil { // what it has counted since they were last read
			return err
		}
	}
	if err := p.usage.hand(p.tun); err != nil {
		return err
	}
	p.tun.close()
	return nil
}

// where is what tunnels of this process are created from.
func (p *process) where() where {
	w := p.site
	w.port = p.state.Port
	return w
}

// take begins with another tunnel. Callers hold memory.
func (p *process) take(t tunnel, at map[wgtypes.Key]netip.AddrPort, now time.Time) error {
	p.tun, p.moved = t, at
	if u, ok := t.(*userspace); ok && p.able {
		u.board.SetAble()
	}
	if err := t.relays(p.state.Relays.Names, p.state.Relays.Token); err != nil {
		return err
	}
	if err := p.usage.keep(t, now); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := p.roster.move(t, at, now); err != nil {
		return err
	}
	p.state.Moved = nil
	if at != nil {
		p.state.Moved = map[string]string{}
		for key, a := range at {
			p.state.Moved[key.String()] = ""
			if a.IsValid() {
				p.state.Moved[key.String()] = a.String()
			}
		}
	}
	return p.remember()
}

// movedTo reads the addresses of the peers at which an earlier process has moved to the kernel; nil if it has not.
func (s state) movedTo() map[wgtypes.Key]netip.AddrPort {
	if s.Moved == nil {
		return nil
	}
	out := map[wgtypes.Key]netip.AddrPort{}
	for text, at := range s.Moved {
		key, err := wgtypes.ParseKey(text)
		if err != nil {
			return nil
		}
		out[key], _ = netip.ParseAddrPort(at)
	}
	return out
}

// move continues with another tunnel, in which no peer has been met. at has the addresses that were proven.
func (r *roster) move(t tunnel, at map[wgtypes.Key]netip.AddrPort, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tun = t
	var changes []peerChange
	for key, w := range r.peers {
		w.met, w.called, w.since, w.rx = false, true, false, 0
		w.due, w.gap = now.Add(firstGap), firstGap
		if a := at[key]; a.IsValid() {
			w.prefer(a)
		}
		if err := t.meet(placesOf(key, w)); err != nil {
			return err
		}
		changes = append(changes, w.change(key))
	}
	if len(changes) == 0 {
		return nil
	}
	return t.apply(changes)
}

// prefer puts an address before all others.
func (w *watched) prefer(a netip.AddrPort) {
	rest := []netip.AddrPort{a}
	for _, e := range w.endpoints {
		if e != a {
			rest = append(rest, e)
		}
	}
	w.endpoints, w.turn = rest, 0
}

// lost says why a tunnel with fixed addresses does not suffice any more: a peer has joined, or one that was received
// from has been silent for long; "" if it does.
func (r *roster) lost(at map[wgtypes.Key]netip.AddrPort, now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, w := range r.peers {
		if _, ok := at[key]; !ok {
			return fmt.Sprintf("rank %d is new", w.peer.Rank)
		}
		if w.since && now.Sub(w.quiet) > silentFor {
			return fmt.Sprintf("rank %d is silent", w.peer.Rank)
		}
	}
	return ""
}
