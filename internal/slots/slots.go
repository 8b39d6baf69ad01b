// Package slots limits the requests of one kind that a replica works on at the same time, per organisation and in all.
package slots

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Slots are the places of one kind of request. They are safe for concurrent use. Set the fields before the first Take.
type Slots struct {
	PerOrg int           // requests of one organisation
	All    int           // requests of all organisations; 0: any number
	Wait   time.Duration // how long a request waits for a slot
	Full   string        // what a request is answered that got none

	mu    sync.Mutex
	taken map[id.Org]int
	all   int
	freed chan struct{} // closed when a slot becomes free
}

// retryAfter is when a request that got no slot may be sent again.
const retryAfter = 5 * time.Second

// Take takes a slot, and waits for one if necessary. leave gives it back; call it once. Fault: RateLimited.
func (s *Slots) Take(ctx context.Context, org id.Org) (leave func(), err error) {
	limit := time.NewTimer(s.Wait)
	defer limit.Stop()
	for {
		freed, ok := s.take(org)
		if ok {
			return func() { s.leave(org) }, nil
		}
		if s.Wait > 0 {
			select {
			case <-freed:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-limit.C:
			}
		}
		f := fault.New(fault.RateLimited, "%s", s.Full)
		f.RetryAfter = retryAfter
		return nil, f
	}
}

func (s *Slots) take(org id.Org) (freed chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == nil {
		s.taken, s.freed = map[id.Org]int{}, make(chan struct{})
	}
	if s.taken[org] >= s.PerOrg || s.All > 0 && s.all >= s.All {
		return s.freed, false
	}
	s.taken[org]++
	s.all++
	return nil, true
}

func (s *Slots) leave(org id.Org) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[org]--; s.taken[org] <= 0 {
		delete(s.taken, org)
	}
	s.all--
	close(s.freed)
	s.freed = make(chan struct{})
}
