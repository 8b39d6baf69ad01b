// Package transfer copies files between a folder of this machine and a volume, through the store, without a host: what
// muster volume cp does. It splits and seals chunks as hosts do, so that a host finds them, and runs wherever the
// command line does.
//
// Invariants:
//   - An upload changes the volume by one commit, which a server decides: interrupted at any moment, the volume's last
//     snapshot is as it was. The same upload, begun again, sends no pack twice that was stored.
//   - A downloaded file appears under its name whole. What is there already is compared by its chunks, never trusted.
//   - No name in a snapshot leads out of the folder that is written, also not through links that lie there already.
//   - The key of the volume is in memory only.
package transfer

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/packio"
	"github.com/musterhq/muster/internal/fault"
)

// Request is a signed request to the store. Its URL is secret.
type Request struct {
	Stored bool // there is nothing to send
	Method string
	URL    string
	Header map[string]string
	Bytes  int64 // of the pack
}

// Snapshot is what an upload commits.
type Snapshot struct {
	Root                  manifest.Ref
	Packs                 []byte // manifest.PackSet
	Bytes, Files, LeftOut int64
}

// Remote is the server's side of an open transfer. Errors are faults, or mean that it was not answered.
type Remote interface {
	// Reserve reserves numbers for packs, first to first + n − 1.
	Reserve(ctx context.Context, count int) (first int64, n int, err error)
	// Store returns the request that stores a pack.
	Store(ctx context.Context, n int64, sum [32]byte, bytes int64) (Request, error)
	// Read returns the request that reads a pack of the transfer's snapshot.
	Read(ctx context.Context, n int64) (Request, error)
	// Commit commits a snapshot and returns its number, or the packs that the store does not have.
	Commit(ctx context.Context, s Snapshot) (seq int64, missing []int64, err error)
	// Report notes how far the transfer is, and keeps it alive.
	Report(ctx context.Context, p Progress) error
}

// Progress is how far a transfer is.
type Progress struct {
	Done, Total int64 // bytes of files
	Files       int64 // that are done
	Moved       int64 // bytes sent to the store, or received from it
}

// A Session is an open transfer.
type Session struct {
	Remote Remote
	Keys   *chunk.Keys
	HTTP   *http.Client  // for the store
	Base   *manifest.Ref // the root of the snapshot to change or to read; nil: the volume is empty
	// Patience is for how long a request is sent again that the server or the store does not answer, or fails; 0: five
	// minutes.
	Patience time.Duration
	// Stall is for how long the store may neither take nor send a byte of a pack; 0: 30 seconds.
	Stall time.Duration
	// Least is the first wait before a request is sent again; 0: half a second.
	Least time.Duration

	mu    sync.Mutex
	reads map[int64]Request // requests that may still be used
}

// inFlight is how many packs are on their way at once.
const inFlight = 4

// reportEvery is how often the server gets to know how far a transfer is.
const reportEvery = 20 * time.Second

// keepAlive reports until the function that it returns is called.
func (s *Session) keepAlive(ctx context.Context, progress func() Progress) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t := time.NewTicker(reportEvery); ; {
			select {
			case <-t.C:
				_ = s.Remote.Report(ctx, progress()) // if the transfer is over, its next request says so
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// retry calls f until it succeeds, fails for good, or patience ends.
func (s *Session) retry(ctx context.Context, f func() error) error {
	patience, wait := s.Patience, s.Least
	if patience == 0 {
		patience = 5 * time.Minute
	}
	if wait == 0 {
		wait = 500 * time.Millisecond
	}
	for end := time.Now().Add(patience); ; wait = min(2*wait, 20*time.Second) {
		err := f()
		if err == nil || final(err) || ctx.Err() != nil || time.Now().Add(wait).After(end) {
			return err
		}
		var known *fault.Fault
		if errors.As(err, &known) {
			wait = max(wait, known.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// final reports whether repeating a request would not help.
func final(err error) bool {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f.Kind != fault.Unavailable && f.Kind != fault.RateLimited && f.Kind != fault.Internal
	}
	return errors.Is(err, chunk.ErrCorrupt) || errors.Is(err, manifest.ErrCorrupt) || packio.Missing(err)
}
