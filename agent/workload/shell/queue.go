package shell

import "sync"

// queue is a process's pending input: bounded, and never blocking its writer.
type queue struct {
	max     int
	mu      sync.Mutex
	changed *sync.Cond
	chunks  [][]byte
	size    int
	ended   bool // no more input will come
	closed  bool // the input is no longer wanted
}

func newQueue(max int) *queue {
	q := &queue{max: max}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// put adds a copy of b. It returns false if the queue is full.
func (q *queue) put(b []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+len(b) > q.max {
		return false
	}
	q.chunks, q.size = append(q.chunks, append([]byte(nil), b...)), q.size+len(b)
	q.changed.Signal()
	return true
}

func (q *queue) end()   { q.set(func() { q.ended = true }) }
func (q *queue) close() { q.set(func() { q.closed = true }) }

func (q *queue) set(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.changed.Signal()
}

// next waits for a chunk; nil means that there will be no more.
func (q *queue) next() (b []byte, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.chunks) == 0 && !q.ended && !q.closed {
		q.changed.Wait()
	}
	if q.closed || len(q.chunks) == 0 {
		return nil, q.ended
	}
	b, q.chunks = q.chunks[0], q.chunks[1:]
	return b, false
}

func (q *queue) taken(n int) { q.set(func() { q.size -= n }) }

// drain writes to the process until the queue has ended or is closed, and calls wrote with the length of each piece. It
// also consumes input that the process no longer reads.
func (q *queue) drain(p Process, wrote func(n int) error) {
	deaf := false
	for {
		b, ended := q.next()
		if b == nil {
			if ended {
				_ = p.CloseWrite()
			}
			return
		}
		if !deaf {
			_, err := p.Write(b)
			deaf = err != nil
		}
		q.taken(len(b))
		if wrote(len(b)) != nil {
			return
		}
	}
}
