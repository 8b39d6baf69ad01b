package cluster

import "context"

// EnoughReports is how many waiting reports are read at once.
const EnoughReports = enoughReports

// Hold makes reports wait until Resume.
func (q *QuietReports) Hold() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readers = maxReaders
}

// Waiting returns how many reports wait.
func (q *QuietReports) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Resume reads the reports that wait.
func (q *QuietReports) Resume(ctx context.Context) {
	q.mu.Lock()
	q.readers = 1
	q.mu.Unlock()
	q.readAll(ctx)
}
