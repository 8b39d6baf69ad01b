package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/packio"
)

func (s *Session) signed(r Request) packio.Request {
	stall := s.Stall
	if stall == 0 {
		stall = 30 * time.Second
	}
	return packio.Request{Method: r.Method, URL: r.URL, Header: r.Header, Stall: stall}
}

// put stores a pack under its number. It returns once the store has it.
func (s *Session) put(ctx context.Context, n int64, pack []byte) error {
	sum := sha256.Sum256(pack)
	return s.retry(ctx, func() error {
		r, err := s.Remote.Store(ctx, n, sum, int64(len(pack)))
		if err != nil || r.Stored {
			return err
		}
		q := s.signed(r)
		q.Body = pack
		_, err = packio.Send(ctx, s.HTTP, q)
		return err
	})
}

// get returns bytes of a pack: length of them from an offset, or the whole pack if length is 0.
func (s *Session) get(ctx context.Context, n int64, from, length int64) (b []byte, err error) {
	err = s.retry(ctx, func() error {
		r, err := s.readable(ctx, n)
		if err != nil {
			return err
		}
		want := length
		if want == 0 {
			want = r.Bytes
		}
		if want < 1 || want > chunk.PackSize {
			return fmt.Errorf("%d bytes are no length of a pack", want)
		}
		q := s.signed(r)
		q.From, q.Length = from, length
		a, err := packio.Send(ctx, s.HTTP, q)
		if packio.Unsigned(err) {
			s.forget(n)
		}
		if err != nil {
			return err
		}
		defer a.Close()
		b = make([]byte, want)
		return a.Full(b)
	})
	return b, err
}

// readable returns the request that reads a pack. It is used again as long as the store accepts it: small files that
// share a pack would else take a request to the server each.
func (s *Session) readable(ctx context.Context, n int64) (Request, error) {
	s.mu.Lock()
	r, ok := s.reads[n]
	s.mu.Unlock()
	if ok {
		return r, nil
	}
	r, err := s.Remote.Read(ctx, n)
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reads == nil || len(s.reads) == maxReads {
		s.reads = map[int64]Request{}
	}
	s.reads[n] = r
	return r, nil
}

// maxReads is how many requests are kept.
const maxReads = 4096

func (s *Session) forget(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reads, n)
}
