package image

import (
	"context"
	"errors"
	"sync"

	"github.com/musterhq/muster/internal/agentapi"
)

// flight is one download of an image, shared by all leases that want it.
type flight struct {
	found    *found
	unpacked *budget
	pace     *pace
	cancel   context.CancelFunc // called when the last waiter has left
	done     chan struct{}
	ended    <-chan struct{} // closed: the daemon gets nothing more

	mu      sync.Mutex
	waiting int
	layers  []agentapi.Layer
	unpack  bool  // whether the daemon is unpacking
	noted   error // what failed in the proxy: the daemon only sees a closed connection
	image   Image // valid after done
	err     error // valid after done
}

// givenUp reports whether the daemon gets nothing more of the download.
func (f *flight) givenUp() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

func (f *flight) count(i int, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.layers[i].Done += n
}

// restart resets a layer's progress: the daemon requests it again after a broken connection.
func (f *flight) restart(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.layers[i].Done = 0
}

func (f *flight) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noted == nil && !errors.Is(err, context.Canceled) {
		f.noted = err
	}
	var final *Error
	if errors.As(classify(err), &final) {
		f.noted = err
		f.cancel() // retrying does not help
	}
}

// applyProgress stores the daemon's own progress: which layers it already has, and that it is unpacking.
func (f *flight) applyProgress(layer, status string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.layers {
		if l := &f.layers[i]; l.Digest == layer {
			switch status {
			case "Already exists":
				l.Done, l.Cached = l.Total, true
			case "Extracting":
				f.unpack = true
			}
		}
	}
}

func (f *flight) progress() agentapi.Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := agentapi.Progress{Step: "layers", Total: f.found.total, Layers: append([]agentapi.Layer(nil), f.layers...)}
	for _, l := range f.layers {
		p.Done += l.Done
	}
	if f.unpack && p.Done >= p.Total {
		p.Step = "unpack"
	}
	return p
}

func (f *flight) fault(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noted != nil {
		return f.noted
	}
	return err
}
