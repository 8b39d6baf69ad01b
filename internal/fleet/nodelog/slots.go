package nodelog

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const (
	gatherPerOrg = 4                // concurrent requests of one org that hold lines in memory
	gatherAll    = 16               // the same for all orgs; each holds up to maxRequest
	gatherWait   = 15 * time.Second // how long a request waits for a slot
	followPerOrg = 64               // concurrent streams of one org
)

// slots limits the number of concurrent log requests on this replica, per organisation and in total.
type slots struct {
	mu        sync.Mutex
	gathering map[id.Org]int
	following map[id.Org]int
	all       int
	freed     chan struct{} // closed when a slot becomes free
}

// gather takes a slot for a request that holds lines in memory, and waits for one if necessary. Fault: RateLimited.
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

// follow takes one of the organisation's slots for open streams. Fault: RateLimited.
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
