// Package packio sends signed requests for packs to a store, and says in words what is wrong with a store.
//
// Invariants:
//   - No error contains a URL: it is secret until it expires.
//   - A request ends if the store neither takes nor sends a byte for the time that its caller gives.
//   - Nothing of what a store sends with an error is shown but the code of the error.
package packio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"
)

// Request is a signed request for one pack.
type Request struct {
	Method string
	URL    string // secret
	Header map[string]string

	Body []byte // of a write; nil: it is a read
	// From and Length are the range to read; Length 0: the whole pack.
	From, Length int64
	// Stall is for how long the store may neither take nor send a byte.
	Stall time.Duration
}

// Answer is what a read returns. It must be closed. Errors of Read are *Error, or io.EOF.
type Answer struct {
	body  io.ReadCloser
	watch *watch
}

// Send sends a request. It returns an *Error unless the store does what is requested, or has the pack already.
func Send(ctx context.Context, c *http.Client, r Request) (*Answer, error) {
	op := "a read"
	if r.Body != nil {
		op = "a write"
	}
	w := newWatch(ctx, op, r.Stall)
	q, err := http.NewRequestWithContext(w.ctx, r.Method, r.URL, nil)
	if err != nil {
		w.stop()
		return nil, errors.New("the server gave a URL that is none")
	}
	if r.Body != nil {
		q.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(&progress{bytes.NewReader(r.Body), w}), nil
		}
		q.Body, _ = q.GetBody() // it returns no error
		q.ContentLength = int64(len(r.Body))
	}
	for k, v := range r.Header {
		q.Header.Set(k, v)
	}
	if r.Length > 0 {
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r.From, r.From+r.Length-1))
	}
	res, err := c.Do(q)
	if err != nil {
		defer w.stop()
		return nil, w.failed(&Error{Op: op, cause: withoutURL(err)})
	}
	if r.Body == nil && res.StatusCode == wanted(r) {
		return &Answer{res.Body, w}, nil
	}
	defer w.stop()
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if r.Body != nil && (res.StatusCode/100 == 2 || res.StatusCode == http.StatusPreconditionFailed) {
		return nil, nil
	}
	e := &Error{Op: op, Status: res.StatusCode}
	if m := code.FindSubmatch(text); m != nil {
		e.Code = string(m[1])
	}
	return nil, e
}

// code is that of an S3 error.
var code = regexp.MustCompile(`<Code>([A-Za-z]{1,64})</Code>`)

func wanted(r Request) int {
	if r.Length > 0 {
		return http.StatusPartialContent
	}
	return http.StatusOK
}

// Read reads from the answer.
func (a *Answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if n > 0 {
		a.watch.moved()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = a.watch.failed(&Error{Op: a.watch.op, Cut: true, cause: withoutURL(err)})
	}
	return n, err
}

// Full fills p. It returns an *Error if the store sends fewer bytes.
func (a *Answer) Full(p []byte) error {
	_, err := io.ReadFull(a, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = &Error{Op: a.watch.op, Cut: true}
	}
	return err
}

// Close ends the request.
func (a *Answer) Close() error {
	err := a.body.Close()
	a.watch.stop()
	return err
}

// A watch ends a request that makes no progress.
type watch struct {
	ctx     context.Context
	outer   context.Context
	cancel  context.CancelFunc
	timer   *time.Timer
	op      string
	stall   time.Duration
	stalled atomic.Bool
}

func newWatch(ctx context.Context, op string, stall time.Duration) *watch {
	w := &watch{outer: ctx, op: op, stall: stall}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.timer = time.AfterFunc(stall, func() {
		w.stalled.Store(true)
		w.cancel()
	})
	return w
}

func (w *watch) moved() { w.timer.Reset(w.stall) }

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel()
}

// failed returns why a request has failed: by its caller's will, or else e.
func (w *watch) failed(e *Error) error {
	if err := w.outer.Err(); err != nil {
		return err
	}
	if w.stalled.Load() {
		e.Cut, e.stalled = false, w.stall
	}
	return e
}

// progress notes when a body is read, which is when the store takes it.
type progress struct {
	io.Reader
	w *watch
}

func (p *progress) Read(b []byte) (int, error) {
	p.w.moved()
	return p.Reader.Read(b)
}

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
