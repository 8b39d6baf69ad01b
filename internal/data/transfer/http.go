package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
)

// transferIn is how long the transfer of one pack may take.
const transferIn = 15 * time.Minute

// put stores a pack under its number. It returns once the store has it.
func (s *Session) put(ctx context.Context, n int64, pack []byte) error {
	sum := sha256.Sum256(pack)
	return s.retry(ctx, func() error {
		r, err := s.Remote.Store(ctx, n, sum, int64(len(pack)))
		if err != nil || r.Stored {
			return err
		}
		status, _, err := s.do(ctx, r, pack, 0, 0)
		switch {
		case err != nil:
			return err
		case status/100 == 2, status == http.StatusPreconditionFailed:
			return nil
		}
		return statusError("a write", status)
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
		var status int
		if status, b, err = s.do(ctx, r, nil, from, length); err != nil {
			return err
		}
		switch {
		case status == http.StatusNotFound, status == http.StatusRequestedRangeNotSatisfiable:
			return errGone
		case status == http.StatusForbidden:
			s.forget(n)
			return errExpired
		case length > 0 && status != http.StatusPartialContent, length == 0 && status != http.StatusOK:
			return statusError("a read", status)
		case int64(len(b)) != want:
			return fmt.Errorf("the store answers a read with %d of %d bytes", len(b), want)
		}
		return nil
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

// do sends one signed request. No error contains its URL.
func (s *Session) do(ctx context.Context, r Request, body []byte, from, length int64) (status int, b []byte,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, transferIn)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.New("the server gave a URL that is none")
	}
	if body == nil {
		q.Body, q.ContentLength = http.NoBody, 0
	}
	for k, v := range r.Header {
		q.Header.Set(k, v)
	}
	if length > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+length-1))
	}
	res, err := s.HTTP.Do(q)
	if err == nil {
		defer res.Body.Close()
		b, err = io.ReadAll(io.LimitReader(res.Body, chunk.PackSize+1))
	}
	var secret *url.Error // its text has the signed URL
	if errors.As(err, &secret) {
		err = secret.Err
	}
	if err != nil {
		return 0, nil, fmt.Errorf("the store does not answer: %w", err)
	}
	return res.StatusCode, b, nil
}
