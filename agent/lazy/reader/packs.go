package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/fusemount/wire"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

const (
	firstWait  = 100 * time.Millisecond // between tries, doubled to maxWait
	maxWait    = 3 * time.Second
	stallAfter = 10 * time.Second // without a byte from the store
	shownAfter = 3 * time.Second  // of waiting, people see that reads wait
	lostTries  = 3                // answers that a pack is not there
	// freshFor is how much longer a signed request must hold to be used.
	freshFor = time.Minute
	// signAhead is how many packs' requests are fetched together: those that follow are likely to be needed.
	signAhead = 32
	maxURLs   = 4096
)

// errRefused is the error of requests that no retry helps.
var errRefused = errors.New("the volume's packs may not be read any more")

// lostError is the error of a pack that the store does not have.
type lostError struct{ pack int64 }

func (e *lostError) Error() string {
	return fmt.Sprintf("the store has lost pack %d of the volume", e.pack)
}

// packs reads ranges of packs from the store, by requests that the control plane has signed.
type packs struct {
	cfg   Config
	has   *manifest.PackSet
	waits func(problem string) // shows why reads wait; "" = they do not any more

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
// once. begun is when the reader began to wait.
func (p *packs) read(ctx context.Context, n int64, from int64, parts []int, begun time.Time,
	each func(i int, b []byte) error) error {
	done := 0
	return p.retry(ctx, n, begun, func() (bool, error) {
		before := done
		err := p.try(ctx, n, from, parts, &done, each)
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
		err = p.try(ctx, n, from, []int{int(min(to, u.Bytes) - from)}, &done, func(_ int, b []byte) error {
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
	missing, last := 0, begun
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		some, err := try()
		if err == nil {
			p.waits("")
			return nil
		}
		if some {
			last, wait = time.Now(), firstWait
		}
		var lost *lostError
		if errors.As(err, &lost) {
			missing++
		}
		if missing >= lostTries || errors.Is(err, errRefused) || errors.Is(err, chunk.ErrCorrupt) || ctx.Err() != nil {
			return err
		}
		silent := time.Since(last)
		if silent > p.cfg.Patience {
			return err
		}
		if silent > shownAfter && lost == nil {
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
	each func(i int, b []byte) error) error {
	u, err := p.url(ctx, n)
	if err != nil {
		return err
	}
	length, largest := int64(0), 0
	for i, l := range parts {
		if i < *done {
			from += int64(l)
			continue
		}
		length, largest = length+int64(l), max(largest, l)
	}
	if from+length > u.Bytes {
		return chunk.ErrCorrupt
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(stallAfter, cancel)
	defer stall.Stop()
	q, err := http.NewRequestWithContext(ctx, u.Method, u.URL, nil)
	if err != nil {
		return errors.New("the control plane gave a URL that is none") // the error would contain the URL
	}
	for k, v := range u.Header {
		q.Header.Set(k, v)
	}
	q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+length-1))
	res, err := p.cfg.HTTP.Do(q)
	if err != nil {
		return errors.New("the store does not answer") // what net/http says contains the signed URL
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusPartialContent:
	case http.StatusForbidden:
		p.drop(n)
		return errors.New("the store does not accept the signed request")
	case http.StatusNotFound:
		p.drop(n)
		return &lostError{n}
	default:
		return fmt.Errorf("the store answers with status %d", res.StatusCode)
	}
	buf := make([]byte, largest)
	for *done < len(parts) {
		b := buf[:parts[*done]]
		for got := 0; got < len(b); {
			k, err := res.Body.Read(b[got:])
			if got += k; k > 0 {
				stall.Reset(stallAfter)
			}
			if err != nil && got < len(b) {
				if errors.Is(err, io.EOF) {
					return errors.New("the store cuts off what it sends")
				}
				return errors.New("the store stopped sending")
			}
		}
		if err := each(*done, b); err != nil {
			return err
		}
		*done++
	}
	return nil
}
