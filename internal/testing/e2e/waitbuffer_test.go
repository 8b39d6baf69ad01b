package e2e

import (
	"bytes"
	"sync"
)

// waitBuffer is a buffer that is read while it is written.
type waitBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *waitBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *waitBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (w *waitBuffer) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Reset()
}
