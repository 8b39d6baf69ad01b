package market

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	// reachEvery is how often a view queries which hosts are reachable. A host that falls silent causes no fleet change,
	// so only this query notices it.
	reachEvery = 5 * time.Second
	// wholeEvery is how often a view reads the whole fleet. It is shorter than keptFor, the time for which changes are
	// kept (see Prune), so that a replica that was suspended misses none.
	wholeEvery = 5 * time.Minute
	keptFor    = 15 * time.Minute
)

// view is this replica's copy of the fleet in memory. It is read again only when a caller needs a newer one; no
// goroutine runs otherwise.
type view struct {
	db        *db.DB
	loadHosts func(context.Context, *dbq.Queries, []id.Host) (map[id.Host]*Host, error)
	simulate  bool
	currency  string
	now       func() time.Time

	seen  atomic.Int64 // begun in unix ns, readable during a read
	ahead atomic.Bool  // a background read is in progress

	turn    sync.Mutex // guards the fields to reachAt
	flight  *flight    // the read in progress; nil: none
	begun   time.Time  // start of the last read on this replica's clock
	reachAt time.Time

	// Only the read in progress uses these.
	wholeAt time.Time
	mark    string
	reach   map[id.Host]bool
	medians map[string]money.Micro // read at mediansAt; see Gangs
	// mediansAt and linkedAt are the times of the last reads of medians and linked.
	mediansAt, linkedAt time.Time
	gangBans            map[id.Host]bool // read at gangBansAt; see Gangs
	gangBansAt          time.Time
	relistLock          time.Duration
	linked              map[id.Org]map[id.Org]bool

	mu    sync.RWMutex // guards the fields below
	snap  *Snapshot
	base  map[id.Host]*Host // hosts as read, without marks
	marks map[*mark]bool    // of plans in progress and of claims that no read has seen yet
	reads int               // number of reads begun
}

// mark is the part of the fleet that a plan takes before a read shows it: from the plan to the end of the attempt and,
// if the attempt claimed it, until a read that began after the attempt ended. A read that began earlier may not have
// seen the claim.
type mark struct {
	nodes []Placed
	until int // number of that read; 0 = the attempt has not ended
}

func newView(d *db.DB, cfg Config, turn int,
	load func(context.Context, *dbq.Queries, []id.Host) (map[id.Host]*Host, error)) *view {
	return &view{
		db:         d,
		loadHosts:  load,
		simulate:   cfg.AllowSimulated,
		currency:   cfg.Currency,
		now:        cfg.Now,
		relistLock: cfg.RelistLock,
		snap:       NewSnapshot(turn),
		base:       map[id.Host]*Host{},
		marks:      map[*mark]bool{},
	}
}

// recent ensures that the view is at most about age old. An older view is read again. The caller waits for this read
// only if the view is more than patience times age old. An outdated view is harmless, because claims are checked under
// the hosts' locks.
func (v *view) recent(ctx context.Context, age time.Duration) error {
	const patience, atMost = 4, 10 * time.Second
	now := v.now()
	old := now.Sub(time.Unix(0, v.seen.Load()))
	switch {
	case old <= age:
		return nil
	case old > patience*age:
		return v.fresh(ctx, now.Add(-age), false)
	}
	if v.ahead.CompareAndSwap(false, true) {
		go func() {
			defer v.ahead.Store(false)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMost)
			defer cancel()
			_ = v.fresh(ctx, now.Add(-age), false) // on failure the next call tries again; an old view makes it wait
		}()
	}
	return nil
}

// flight is a read that callers share. Its other fields are set when done is closed.
type flight struct {
	begun time.Time
	done  chan struct{}
	err   error
}

// readTime limits how long a read of the fleet takes.
const readTime = 10 * time.Second

// fresh ensures that the view is from a read that began after notBefore. Callers that wait for the same read share it:
// it does not end with the context of the one that began it.
func (v *view) fresh(ctx context.Context, notBefore time.Time, reach bool) error {
	for {
		v.turn.Lock()
		if v.begun.After(notBefore) && (!reach || v.reachAt.After(notBefore)) {
			v.turn.Unlock()
			return nil
		}
		f := v.flight
		if f == nil {
			f = &flight{begun: v.now(), done: make(chan struct{})}
			v.flight = f
			go v.fly(context.WithoutCancel(ctx), f, reach)
		}
		v.turn.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the fleet: %w", ctx.Err())
		}
		if f.err != nil && f.begun.After(notBefore) {
			return f.err
		}
	}
}

// fly reads the fleet.
func (v *view) fly(ctx context.Context, f *flight, reach bool) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var reached bool
	defer func() {
		if p := recover(); p != nil {
			f.err = fmt.Errorf("panic while the fleet was read: %v\n%s", p, debug.Stack())
		}
		v.turn.Lock()
		defer v.turn.Unlock()
		if v.flight = nil; f.err == nil {
			v.begun = f.begun
			if reached {
				v.reachAt = f.begun
			}
		}
		close(f.done)
	}()
	reached, f.err = v.readAt(ctx, f.begun, reach)
}

// readAt reads the changes since the last read, or the whole fleet. reached reports whether it queried which hosts are
// reachable.
func (v *view) readAt(ctx context.Context, begun time.Time, reach bool) (reached bool, err error) {
	whole := v.mark == "" || begun.Sub(v.wholeAt) > wholeEvery
	reach = reach || whole || begun.Sub(v.reachAt) > reachEvery
	number := v.begin()
	r, err := v.read(ctx, whole, reach)
	if err != nil {
		return false, err
	}
	v.mark = r.mark
	if whole {
		v.wholeAt = begun
	}
	if reach {
		v.reach = r.reach
	}
	v.apply(r, whole, number)
	v.seen.Store(begun.UnixNano())
	return reach, nil
}

// begin returns the number of a new read.
func (v *view) begin() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	return v.reads
}

// read reads the changes since the last read, in one database snapshot.
func (v *view) read(ctx context.Context, whole, reach bool) (r fleetRead, err error) {
	err = v.db.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) error {
		r, err = v.readFrom(ctx, q, whole, reach)
		return err
	})
	return r, err
}

func (v *view) readFrom(ctx context.Context, q *dbq.Queries, whole, reach bool) (fleetRead, error) {
	m, err := q.FleetMark(ctx)
	if err != nil {
		return fleetRead{}, fmt.Errorf("read the fleet: %w", err)
	}
	r := fleetRead{mark: m.Xmin, at: m.At}
	again := map[id.Host]bool{}
	if !whole {
		changed, err := q.ChangedHosts(ctx, v.mark)
		if err != nil {
			return fleetRead{}, fmt.Errorf("changed hosts: %w", err)
		}
		for _, h := range changed {
			again[h] = true
		}
		v.addExpired(again, m.At)
	}
	if reach {
		ids, err := q.ReachableHosts(ctx, host.ReachableFor.Milliseconds())
		if err != nil {
			return fleetRead{}, fmt.Errorf("reachable hosts: %w", err)
		}
		r.reach = make(map[id.Host]bool, len(ids))
		for _, h := range ids {
			r.reach[h] = true
			again[h] = again[h] || whole || !v.reach[h]
		}
		for h := range v.reach {
			again[h] = again[h] || !r.reach[h]
		}
	}
	for h, do := range again {
		if do {
			r.ids = append(r.ids, h)
		}
	}
	if r.hosts, err = v.loadHosts(ctx, q, r.ids); err != nil {
		return r, err
	}
	r.gangs, err = v.readGangs(ctx, q)
	return r, err
}

// addExpired adds the hosts on which a quote's claim has expired: expiry by time causes no fleet change.
func (v *view) addExpired(again map[id.Host]bool, at time.Time) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for hid, h := range v.base {
		if !h.NextExpiry.IsZero() && !h.NextExpiry.After(at) {
			again[hid] = true
		}
	}
}

func (v *view) apply(r fleetRead, whole bool, number int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for m := range v.marks {
		if m.until != 0 && m.until <= number {
			v.unmark(m) // this read or an earlier one that saw the claim includes its hosts
		}
	}
	if whole {
		for hid := range v.base {
			if r.hosts[hid] == nil {
				v.put(hid, nil)
			}
		}
	}
	for _, hid := range r.ids {
		v.put(hid, r.hosts[hid])
	}
	v.snap.SetGangs(r.gangs)
}

// put replaces a host in the view, or removes it if h is nil, and marks what plans in progress are about to claim on
// it. The caller must hold v.mu.
func (v *view) put(hid id.Host, h *Host) {
	if h == nil {
		delete(v.base, hid)
		v.snap.Remove(hid)
		return
	}
	v.base[hid] = h
	for m := range v.marks {
		for _, n := range m.nodes {
			if n.Host == hid && (m.until == 0 || h.allFree(n.GPUs)) { // skip marks whose claims h already includes
				h = h.without(n)
			}
		}
	}
	v.snap.Put(h)
}

// addMark marks what a plan takes. The caller must hold v.mu.
func (v *view) addMark(plan Placement) *mark {
	m := &mark{nodes: plan.Nodes}
	if len(m.nodes) > 0 {
		v.marks[m] = true
		v.snap.Take(plan)
	}
	return m
}

// whileMarked runs f, which claims what is marked, and then removes the mark; if f returns nil, the mark stays until a
// read has seen the claim. It also removes the mark if f panics.
func (v *view) whileMarked(m *mark, f func() error) (err error) {
	claimed := false
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if claimed {
			m.until = v.reads + 1
		} else {
			v.unmark(m)
		}
	}()
	err = f()
	claimed = err == nil
	return err
}

func (v *view) unmark(m *mark) {
	delete(v.marks, m)
	for _, n := range m.nodes {
		if h := v.base[n.Host]; h != nil {
			v.put(n.Host, h)
		}
	}
}

// topology returns the topology of a host in the view, or nil if it is unknown.
func (v *view) topology(hid id.Host) *Topology {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if h := v.base[hid]; h != nil {
		return h.Topology
	}
	return nil
}

// allFree reports whether all of the GPUs are present and free.
func (h *Host) allFree(gpus []GPU) bool {
	free := 0
	for i := range h.GPUs {
		if !h.GPUs[i].Free {
			continue
		}
		for _, g := range gpus {
			if g.ID == h.GPUs[i].ID {
				free++
			}
		}
	}
	return free == len(gpus)
}
