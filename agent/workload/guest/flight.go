package guest

import (
	"context"
	"reflect"
	"sync"

	"github.com/musterhq/muster/internal/agentapi"
)

// flight is a guest's one preflight: it outlives the agents that ask for it.
type flight struct {
	mu    sync.Mutex
	q     PreflightRequest
	stop  context.CancelFunc
	done  chan struct{}       // closed when Measure has returned
	last  *agentapi.Preflight // the latest result
	moved chan struct{}       // closed and replaced with every result
}

// begin starts measuring, unless the same request is already being served. Another request replaces the one before.
func (f *flight) begin(h *Holder, q PreflightRequest, measured bool) {
	f.mu.Lock()
	same := f.stop != nil && reflect.DeepEqual(f.q, q)
	f.mu.Unlock()
	if same {
		return
	}
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != nil {
		return // another call was quicker
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	f.q, f.stop, f.done, f.last, f.moved = q, stop, done, nil, make(chan struct{})
	go func() {
		defer close(done)
		h.Measure(ctx, q, measured, f.finish)
	}()
}

func (f *flight) finish(p agentapi.Preflight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = &p
	close(f.moved)
	f.moved = make(chan struct{})
}

// result begins a preflight if necessary and waits for its result, or for ctx's end.
func (f *flight) result(ctx context.Context, h *Holder, q PreflightRequest) (agentapi.Preflight, error) {
	f.begin(h, q, false)
	for {
		f.mu.Lock()
		last, moved := f.last, f.moved
		f.mu.Unlock()
		if last != nil {
			return *last, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return agentapi.Preflight{}, ctx.Err()
		}
	}
}

// end stops measuring and returns when nothing listens any more.
func (f *flight) end() {
	f.mu.Lock()
	stop, done := f.stop, f.done
	f.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-done
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done == done {
		f.stop = nil
	}
}
