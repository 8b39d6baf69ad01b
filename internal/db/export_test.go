package db

// Waiting returns how many calls wait for a set.
func (g *Gather[A, R]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// Keys returns of how many keys a read is under way.
func (s *Shared[K, V]) Keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.by)
}

// Waits reports whether anybody waits for the next read of a key.
func (s *Shared[K, V]) Waits(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[key] != nil && s.by[key].next != nil
}
