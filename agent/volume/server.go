package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
)

// Server passes one request about a volume to the control plane. An error means that it was not answered.
type Server func(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error)

// remote is the control plane and the store, as one session uses them.
type remote struct {
	server  Server
	http    *http.Client
	ref     agentapi.LeaseRef
	volume  string
	session string
	least   time.Duration // first wait after a failure, doubled to maxWait
}

const maxWait = time.Minute

// retry calls f until it succeeds, fails for good, or ctx ends. f returns how long to wait at least before the next
// try.
func (r *remote) retry(ctx context.Context, f func() (time.Duration, error)) error {
	for wait := r.least; ; wait = min(2*wait, maxWait) {
		least, err := f()
		if err == nil || final(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(max(wait, least)):
		}
	}
}

// final reports whether repeating a request would not help.
func final(err error) bool {
	var refused *agentapi.VolumeError
	if errors.As(err, &refused) {
		// A snapshot that comes too soon is cut already, and its job may have gone on: it is committed later.
		return refused.Code != agentapi.VolumeAway && refused.Code != agentapi.VolumeTooSoon
	}
	var store *storeError
	return errors.As(err, &store) && store.final
}

// call sends a request until it is answered. A refusal is an *agentapi.VolumeError.
func (r *remote) call(ctx context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
	q.LeaseRef, q.Volume, q.Session = r.ref, r.volume, r.session
	err = r.retry(ctx, func() (time.Duration, error) {
		var err error
		if reply, err = r.server(ctx, q); err != nil {
			return 0, err
		}
		if reply.AckError != "" {
			return time.Duration(reply.RetryMS) * time.Millisecond, fmt.Errorf("%s of a volume: %s", q.Op, reply.AckError)
		}
		if reply.Error != nil {
			return 0, reply.Error
		}
		return 0, nil
	})
	return reply, err
}

// A storeError is an answer of the store.
type storeError struct {
	op     string
	status int
	final  bool
	cause  error // if it was no status
}

func (e *storeError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("the store fails %s: %s", e.op, e.cause)
	}
	return fmt.Sprintf("the store answers %s with status %d", e.op, e.status)
}

// errExpired: the URL's time is over.
var errExpired = errors.New("the URL has expired")

// do sends one signed request to the store.
func (r *remote) do(ctx context.Context, u agentapi.PackURL, body []byte, from, length int64) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, transferIn)
	q, err := http.NewRequestWithContext(ctx, u.Method, u.URL, nil)
	if err != nil {
		cancel()
		return nil, errors.New("the server gave a URL that is none") // the error would contain the URL
	}
	if body != nil {
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	for k, v := range u.Header {
		q.Header.Set(k, v)
	}
	if length > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+length-1))
	}
	res, err := r.http.Do(q)
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the store does not answer: %w", withoutURL(err))
	}
	res.Body = &closing{res.Body, cancel}
	return res, nil
}

// transferIn is how long the transfer of one pack may take.
const transferIn = 10 * time.Minute

// withoutURL returns the cause of an error of net/http, whose text contains the signed URL.
func withoutURL(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

type closing struct {
	io.ReadCloser
	done func()
}

func (c *closing) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}

// store stores a whole pack under its number. It returns once the store has it.
func (r *remote) store(ctx context.Context, snapshot string, n int64, pack []byte) error {
	sum := sha256.Sum256(pack)
	return r.retry(ctx, func() (time.Duration, error) {
		reply, err := r.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeGrant, Grant: &agentapi.GrantPacks{
			Snapshot: snapshot, Packs: []agentapi.PackGrant{{N: n, SHA256: sum[:], Bytes: int64(len(pack))}},
		}})
		if err != nil {
			return 0, err
		}
		if reply.Grant == nil || len(reply.Grant.Packs) != 1 || reply.Grant.Packs[0].N != n {
			return 0, errors.New("the server answers a grant with something else")
		}
		u := reply.Grant.Packs[0]
		if u.Stored {
			return 0, nil
		}
		res, err := r.do(ctx, u, pack, 0, 0)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
		switch {
		case res.StatusCode/100 == 2, res.StatusCode == http.StatusPreconditionFailed:
			return 0, nil
		case res.StatusCode == http.StatusForbidden:
			return 0, errExpired
		}
		return 0, &storeError{op: "a write", status: res.StatusCode}
	})
}

// read returns bytes of a pack: length of them from an offset, or all of it if length is 0. The URL may expire: then
// the error is errExpired.
func (r *remote) read(ctx context.Context, u agentapi.PackURL, from, length int64) ([]byte, error) {
	res, err := r.do(ctx, u, nil, from, length)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	want := length
	switch {
	case res.StatusCode == http.StatusForbidden:
		return nil, errExpired
	case length > 0 && res.StatusCode != http.StatusPartialContent, length == 0 && res.StatusCode != http.StatusOK:
		return nil, &storeError{op: "a read", status: res.StatusCode}
	case length == 0:
		want = u.Bytes
	}
	if want <= 0 || want > chunk.PackSize {
		return nil, fmt.Errorf("%d bytes are no length of a pack", want)
	}
	b := make([]byte, want)
	if _, err := io.ReadFull(res.Body, b); err != nil {
		return nil, fmt.Errorf("read a pack: %w", withoutURL(err))
	}
	return b, nil
}
