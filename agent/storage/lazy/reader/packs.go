package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/packio"
)

const (
	firstWait  = 100 * time.Millisecond // between tries, doubled to maxWait
	maxWait    = 3 * time.Second
	stallAfter = 10 * time.Second // without a byte from the store
	shownAfter = 3 * time.Second  // of waiting, people see that reads wait
	lostTries  = 3                // answers that a pack is not there, or has other bytes
	partTime   = time.Minute      // for one chunk, however steadily its bytes arrive
	// freshFor is how much longer a signed request must hold to be used.
	freshFor = time.Minute
	// signAhead is how many packs' requests are fetched together: those that follow are likely to be needed.
	signAhead = 32
	maxURLs   = 4096
)

// errRefused is the error of requests that no retry helps.
var errRefused = errors.New("the volume's packs may not be read any more")

// flawError is the error of a pack that the store does not have, or of which it sends other bytes than were stored.
type flawError struct {
	pack    int64
	changed bool
}

func (e *flawError) Error() string {
	if e.changed {
		return fmt.Sprintf("the store has other bytes in pack %d of the volume than were stored", e.pack)
	}
	return fmt.Sprintf("the store has lost pack %d of the volume", e.pack)
}

// packs reads ranges of packs from the store, by requests that the control plane has signed.
type packs struct {
	cfg   Config
	has   *manifest.PackSet
	waits func(problem string) // shows why reads wait; "" = they do not any more
	whole func(pack int64)     // the store has sent what was stored in a pack

	signing sync.Mutex // held during a request for signed requests
	mu      sync.Mutex
	urls    map[int64]wire.Pack
}

// url returns a signed request for a pack, that holds for a while.
func (p *packs) url(ctx context.Context, n int64) (wire.Pack, error) {
	if u, ok := p.held(n); ok {
		return u, nil
	}
	p.signing.Lock()
	defer p.signing.Unlock()
	if u, ok := p.held(n); ok { // it came with another one's
		return u, nil
	}
	got, err := p.cfg.URLs(ctx, p.following(n))
	if err != nil {
		return wire.Pack{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.urls)+len(got) > maxURLs {
		clear(p.urls)
	}
	for _, u := range got {
		p.urls[u.N] = u
	}
	u, ok := p.urls[n]
	if !ok || u.Bytes < 1 || u.Bytes > chunk.PackSize {
		return u, errors.New("the control plane answers a read with something else")
	}
	return u, nil
}

func (p *packs) held(n int64) (wire.Pack, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u, ok := p.urls[n]
	return u, ok && time.UnixMilli(u.UntilMS).After(time.Now().Add(freshFor))
}

func (p *packs) drop(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.urls, n)
}

// following returns n and packs of the snapshot after it whose requests are not held.
func (p *packs) following(n int64) []int64 {
	out := []int64{n}
	for _, r := range p.has.Runs() {
		for k := max(r.First, n+1); k <= r.Last && len(out) < signAhead; k++ {
			if _, ok := p.held(k); !ok {
				out = append(out, k)
			}
		}
	}
	return out
}

// read reads bytes of a pack, from an offset on, and passes them on in parts of these lengths as they arrive, each
// once, in a buffer that each keeps. begun is when the reader began to wait.
func (p *packs) read(ctx context.Context, n int64, from int64, parts []int, begun time.Time,
	buffer func(n int) []byte, each func(i int, b []byte) error) error {
	done := 0
	return p.retry(ctx, n, begun, func() (bool, error) {
		before := done
		err := p.try(ctx, n, from, parts, &done, buffer, each)
		return done > before, err
	})
}

// readTo reads a part of a pack, which may reach beyond its end.
func (p *packs) readTo(n, from, to int64, each func(b []byte)) error {
	ctx := context.Background()
	return p.retry(ctx, n, time.Now(), func() (bool, error) {
		u, err := p.url(ctx, n)
		if err != nil {
			return false, err
		}
		if from >= u.Bytes {
			return false, chunk.ErrCorrupt
		}
		done := 0
		fresh := func(n int) []byte { return make([]byte, n) }
		err = p.try(ctx, n, from, []int{int(min(to, u.Bytes) - from)}, &done, fresh, func(_ int, b []byte) error {
			each(b)
			return nil
		})
		return false, err
	})
}

// retry calls try until it succeeds, fails for good, or the store has not sent anything for cfg.Patience since begun.
// try reports whether something came.
func (p *packs) retry(ctx context.Context, n int64, begun time.Time, try func() (bool, error)) error {
	if !p.has.Has(n) {
		return chunk.ErrCorrupt
	}
	flaws, last := 0, begun
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		some, err := try()
		if err == nil {
			p.waits("")
			p.whole(n)
			return nil
		}
		if some {
			last, wait = time.Now(), firstWait
		}
		if packio.Missing(err) {
			p.drop(n)
			err = &flawError{pack: n}
		} else if errors.Is(err, chunk.ErrCorrupt) { // the line or a cache before the store may have changed them
			err = &flawError{pack: n, changed: true}
		}
		var flaw *flawError
		if errors.As(err, &flaw) {
			flaws++
		}
		if flaws >= lostTries || errors.Is(err, errRefused) || ctx.Err() != nil {
			return err
		}
		silent := time.Since(last)
		if silent > p.cfg.Patience {
			return err
		}
		if silent > shownAfter && flaw == nil {
			p.waits(err.Error())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// try reads what is not done yet of a read, with one request.
func (p *packs) try(ctx context.Context, n int64, from int64, parts []int, done *int,
	buffer func(n int) []byte, each func(i int, b []byte) error) error {
	u, err := p.url(ctx, n)
	if err != nil {
		return err
	}
	length := int64(0)
	for i, l := range parts {
		if i < *done {
			from += int64(l)
			continue
		}
		length += int64(l)
	}
	if from+length > u.Bytes {
		return chunk.ErrCorrupt
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(partTime, func() { cancel(errSlow) })
	defer slow.Stop()
	answer, err := packio.Send(ctx, p.cfg.HTTP, packio.Request{Method: u.Method, URL: u.URL, Header: u.Header,
		From: from, Length: length, Stall: stallAfter})
	if packio.Unsigned(err) {
		p.drop(n)
	}
	if err != nil {
		return cause(ctx, err)
	}
	defer answer.Close()
	for *done < len(parts) {
		b := buffer(parts[*done])
		if err := answer.Full(b); err != nil {
			return cause(ctx, err)
		}
		slow.Reset(partTime)
		if err := each(*done, b); err != nil {
			return err
		}
		*done++
	}
	return nil
}

var errSlow = fmt.Errorf("the store is too slow: a chunk did not arrive within %s", partTime)

// cause returns why a request has failed.
func cause(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSlow) {
		return errSlow
	}
	return err
}
