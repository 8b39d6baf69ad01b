package db

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Gather makes one call out of many. Calls that arrive while others are being made wait, and are made together next, by
// statements for the whole set. A call never waits for others to arrive. Safe for concurrent use.
type Gather[A, R any] struct {
	// do makes the calls and returns their results in the order of the arguments. Its context is the one of the call that
	// came first, without its end.
	do      func(ctx context.Context, all []A) ([]R, error)
	weight  func(A) int   // of a call; nil: 1
	runners int           // sets under way at the same time
	most    int           // weight of one set, unless it is a single call
	least   int           // weight that must wait for a set to begin while others are under way
	within  time.Duration // that one set may take

	mu      sync.Mutex
	waiting []*gathered[A, R]
	load    int // weight of those that wait
	running int
}

// gathered is a call and its result, once done is closed.
type gathered[A, R any] struct {
	ctx    context.Context
	arg    A
	result R
	err    error
	done   chan struct{}
}

// NewGather returns a Gather of do, which makes at most so many sets of at most so many calls at the same time.
func NewGather[A, R any](runners, most int, within time.Duration,
	do func(ctx context.Context, all []A) ([]R, error)) *Gather[A, R] {
	return &Gather[A, R]{do: do, runners: runners, most: most, within: within}
}

// Weighing has calls weigh something else than 1 each. It is called before all others.
func (g *Gather[A, R]) Weighing(weight func(A) int) *Gather[A, R] {
	g.weight = weight
	return g
}

// Worth has a set begin beside others only if calls of this weight wait. Fewer wait until no set is under way, so that
// what a set costs however small it is, is shared by more. It is called before all others.
func (g *Gather[A, R]) Worth(least int) *Gather[A, R] {
	g.least = least
	return g
}

func (g *Gather[A, R]) weigh(c *gathered[A, R]) int {
	if g.weight == nil {
		return 1
	}
	return g.weight(c.arg)
}

// Do makes a call. If ctx ends first, its error is returned and the call may still be made. An error of a set is that
// of each of its calls, unless it contains several: then each is made again by itself, so that one call's trouble is
// not the others'.
func (g *Gather[A, R]) Do(ctx context.Context, arg A) (R, error) {
	c := &gathered[A, R]{ctx: ctx, arg: arg, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	g.load += g.weigh(c)
	if g.running == 0 || g.running < g.runners && g.load >= g.least {
		g.running++
		go g.run()
	}
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// run makes calls until none waits.
func (g *Gather[A, R]) run() {
	for set := g.next(); len(set) > 0; set = g.next() {
		if !g.together(set) && len(set) > 1 {
			for i := range set {
				g.together(set[i : i+1])
			}
		}
		for _, c := range set {
			close(c.done)
		}
	}
}

// next takes the calls that have waited longest; none: the caller no longer runs.
func (g *Gather[A, R]) next() []*gathered[A, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 || g.running > 1 && g.load < g.least { // another runner takes what is left
		g.running--
		return nil
	}
	n, taken := 0, 0
	for ; n < len(g.waiting); n++ {
		w := g.weigh(g.waiting[n])
		if taken+w > g.most && n > 0 {
			break
		}
		taken += w
	}
	set := g.waiting[:n:n]
	g.load -= taken
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return set
}

// together makes the calls of a set and reports whether that worked.
func (g *Gather[A, R]) together(set []*gathered[A, R]) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(set[0].ctx), g.within)
	defer cancel()
	args := make([]A, len(set))
	for i, c := range set {
		args[i] = c.arg
	}
	results, err := noPanic(func() ([]R, error) { return g.do(ctx, args) })
	if err == nil && len(results) != len(set) {
		err = fmt.Errorf("%d results of %d calls", len(results), len(set))
	}
	for i, c := range set {
		if c.err = err; err == nil {
			c.result = results[i]
		}
	}
	return err == nil
}

// noPanic returns a panic of f as an error: f runs for several callers, outside the goroutine of any.
func noPanic[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// Shared lets callers that want to read the same thing at about the same time share one read. What a caller gets was
// read after it asked, so it sees everything that was committed before: a caller that comes while a read is under way
// waits for the next one, which all who have come meanwhile share. They must not change what they get. The zero value
// is ready for use, concurrently, too.
type Shared[K comparable, V any] struct {
	mu sync.Mutex
	by map[K]*sharing[V] // reads under way
}

// sharing is a read under way; next are those that wait for the one after it, nil: none does.
type sharing[V any] struct{ next *sharedRead[V] }

// sharedRead is what several callers read, once done is closed.
type sharedRead[V any] struct {
	ctx  context.Context // of one of them
	read func(context.Context) (V, error)
	v    V
	err  error
	done chan struct{}
}

// sharedFor bounds a read that is shared.
const sharedFor = 30 * time.Second

// Read returns what read returns, of this call or of another one's with the same key that began after this one.
func (s *Shared[K, V]) Read(ctx context.Context, key K, read func(context.Context) (V, error)) (V, error) {
	s.mu.Lock()
	at := s.by[key]
	if at == nil {
		if s.by == nil {
			s.by = map[K]*sharing[V]{}
		}
		s.by[key] = &sharing[V]{}
		s.mu.Unlock()
		defer s.after(key)
		return read(ctx) // not shared: a caller that comes now wants a later one
	}
	if at.next == nil {
		at.next = &sharedRead[V]{ctx: ctx, read: read, done: make(chan struct{})}
	}
	r := at.next
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.v, r.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// after ends a read and begins the next one if anybody waits for it.
func (s *Shared[K, V]) after(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.by[key].next
	if r == nil {
		delete(s.by, key)
		return
	}
	s.by[key].next = nil
	go func() {
		defer close(r.done)
		defer s.after(key) // first, so that nothing is kept once all callers have their answers
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), sharedFor)
		defer cancel()
		r.v, r.err = noPanic(func() (V, error) { return r.read(ctx) })
	}()
}
