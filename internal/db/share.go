package db

import (
	"context"
	"fmt"
	"sync"
)

// Use is what a connection is needed for. Each use but the first may have only a part of the pool, so that an overload
// of one leaves connections to the others.
type Use int

// Uses of connections.
const (
	People      Use = iota // requests of people and their programs; for every context that does not say otherwise
	Reports                // reports of hosts: half of the pool
	Connections            // authorisation of hosts' connections: an eighth
	Jobs                   // background jobs: a quarter
	Locks                  // of Alone, for as long as it runs: a quarter
	uses
)

// part is the part of the pool that a use may have: one divided by the number; 0: all.
var part = [uses]int32{Reports: 2, Connections: 8, Jobs: 4, Locks: 4}

type useKey struct{}

// For returns a context whose connections are needed for use.
func For(ctx context.Context, use Use) context.Context { return context.WithValue(ctx, useKey{}, use) }

// shares limits how many connections each use has at the same time.
type shares [uses]chan struct{}

func newShares(conns int32) (s shares) {
	for use, n := range part {
		if n > 0 {
			s[use] = make(chan struct{}, max(conns/n, 1))
		}
	}
	return s
}

// enter waits until the use of ctx may have one more connection. The caller must call leave once; it may do so several
// times.
func (s shares) enter(ctx context.Context) (leave func(), err error) {
	use, _ := ctx.Value(useKey{}).(Use)
	slots := s[use]
	if slots == nil {
		return func() {}, nil
	}
	select {
	case slots <- struct{}{}:
		return sync.OnceFunc(func() { <-slots }), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection: %w", noConnection(ctx.Err()))
	}
}
