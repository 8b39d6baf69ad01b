// Package slots shares a bounded number of places among the leases of a host.
package slots

import "sync"

// Slots counts places by lease. It is safe for concurrent use.
type Slots struct {
	total, each int

	mu    sync.Mutex
	taken int
	by    map[string]int
}

// New returns Slots with total places, of which one lease may hold at most each.
func New(total, each int) *Slots {
	return &Slots{total: total, each: each, by: map[string]int{}}
}

// Take takes a place for a lease. release gives it back and may be called more than once. ok is false if the lease
// holds its share or all places are taken. A lease that holds no place gets one even if all are taken: a tenant with
// several leases cannot block the others on the host.
func (s *Slots) Take(lease string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.by[lease]; n >= s.each || n > 0 && s.taken >= s.total {
		return nil, false
	}
	s.taken++
	s.by[lease]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
		if s.by[lease]--; s.by[lease] == 0 {
			delete(s.by, lease)
		}
	}), true
}
