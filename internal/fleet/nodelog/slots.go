package nodelog

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const (
	gatherPerOrg = 4                // requests of one org that hold lines in memory at the same time
	gatherAll    = 16               // of all orgs: maxRequest each
	gatherWait   = 15 * time.Second // for a place
	followPerOrg = 64               // streams of one org that are open at the same time
)

// slots bound how many log requests an org, and all of them, have on this replica.
type slots struct {
	mu        sync.Mutex
	gathering map[id.Org]int
	following map[id.Org]int
	all       int
	freed     chan struct{} // closed when a place becomes free
}

// gather takes a place among the requests that gather lines, waiting for one if need be. Fault: RateLimited.
func (s *slots) gather(ctx context.Context, org id.Org) (leave func(), err error) {
	limit := time.NewTimer(gatherWait)
	defer limit.Stop()
	for {
		s.mu.Lock()
		if s.gathering == nil {
			s.gathering, s.following, s.freed = map[id.Org]int{}, map[id.Org]int{}, make(chan struct{})
		}
		if s.gathering[org] < gatherPerOrg && s.all < gatherAll {
			s.gathering[org]++
			s.all++
			s.mu.Unlock()
			return func() { s.leave(s.gathering, org, true) }, nil
		}
		freed := s.freed
		s.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, tooMany("logs are being read by many requests at the same time: try again in a moment")
		}
	}
}

// follow takes a place among the org's open streams. Fault: RateLimited.
func (s *slots) follow(org id.Org) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.following == nil {
		s.gathering, s.following, s.freed = map[id.Org]int{}, map[id.Org]int{}, make(chan struct{})
	}
	if s.following[org] >= followPerOrg {
		return nil, tooMany("your organisation follows logs in too many places: close some")
	}
	s.following[org]++
	return func() { s.leave(s.following, org, false) }, nil
}

func (s *slots) leave(of map[id.Org]int, org id.Org, gathering bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of[org]--; of[org] <= 0 {
		delete(of, org)
	}
	if gathering {
		s.all--
		close(s.freed)
		s.freed = make(chan struct{})
	}
}

func tooMany(text string) error {
	f := fault.New(fault.RateLimited, "%s", text)
	f.RetryAfter = 5 * time.Second
	return f
}
