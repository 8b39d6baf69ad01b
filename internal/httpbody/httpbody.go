// Package httpbody bounds the bodies of HTTP requests, in bytes and in time, before any handler reads them.
//
// net/http reads a body only when a handler asks for it, but then without a limit: http.Request.FormValue parses a
// multipart body and writes its files to the temporary directory, and a client that stops sending holds its handler for
// ever. Every listener of a server puts Limit around its handlers, so that no handler has to remember it.
//
// A server that closes a connection with unread bytes resets it, and the client's system then discards an answer that
// its program has not read yet. Many clients read nothing before they have sent the whole body. Limit therefore reads
// and discards a bounded rest of each body that its handler left unread.
package httpbody

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// DefaultTimeout is how long a client may take to send a whole body.
const DefaultTimeout = 30 * time.Second

// What is left of a body when its request has been answered is read for at most drainTimeout, and at most
// drainFactor × maxBytes of it: a client that sends twice what it may reads why it was refused.
const (
	drainTimeout = 2 * time.Second
	drainFactor  = 2
)

// Limit answers 413 to a request whose body is larger than maxBytes, 400 to one that has a body where HTTP gives it no
// meaning (GET, HEAD), and fails reads that go on for longer than timeout. A body without a declared length is cut at
// maxBytes. WebSockets are not affected: their handshake has no body.
func Limit(next http.Handler, maxBytes int64, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !has(r) {
			next.ServeHTTP(w, r)
			return
		}
		sent := r.Body
		ctl := http.NewResponseController(w)
		_ = ctl.SetReadDeadline(time.Now().Add(timeout)) // not supported by test recorders
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			refuse(w, http.StatusBadRequest, "a "+r.Method+" request has no body here")
		case r.ContentLength > maxBytes:
			refuse(w, http.StatusRequestEntityTooLarge, "the request's body is too large")
		default:
			b := &body{ReadCloser: http.MaxBytesReader(w, sent, maxBytes), deadline: ctl.SetReadDeadline}
			r.Body = b
			next.ServeHTTP(w, r)
			r.Body = sent // net/http decides by its own type how to close the connection
			if b.ended {
				return
			}
		}
		drain(ctl, r, drainFactor*maxBytes)
	})
}

// drain reads and discards what the client still sends, at most n bytes.
func drain(ctl *http.ResponseController, r *http.Request, n int64) {
	if r.Header.Get("Expect") != "" {
		return // the client waits to be asked for the body, and reading would ask for it
	}
	if ctl.SetReadDeadline(time.Now().Add(drainTimeout)) != nil {
		return // no connection: a test recorder
	}
	if _, err := io.CopyN(io.Discard, r.Body, n); errors.Is(err, io.EOF) {
		_ = ctl.SetReadDeadline(time.Time{})
	}
}

// LimitIdle lets bodies of any size through, for handlers that pass them on without storing them. A read that waits
// longer than idle for the next bytes fails.
func LimitIdle(next http.Handler, idle time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if has(r) {
			ctl := http.NewResponseController(w)
			_ = ctl.SetReadDeadline(time.Now().Add(idle)) // also for a body that no handler reads
			r.Body = &body{ReadCloser: r.Body, deadline: ctl.SetReadDeadline, idle: idle}
		}
		next.ServeHTTP(w, r)
	})
}

func has(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// refuse answers at once, and has the connection closed when the handler returns.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
	_ = http.NewResponseController(w).Flush() // not supported by test recorders
}

// body moves the connection's read deadline along with its reads. After the last one the deadline is lifted: the
// server watches the connection to see whether the client has gone, and a deadline would look as if it had.
type body struct {
	io.ReadCloser
	deadline func(time.Time) error
	idle     time.Duration // 0: the deadline stays where it was set
	ended    bool          // it was read to its end
}

func (b *body) Read(p []byte) (int, error) {
	if b.idle > 0 {
		_ = b.deadline(time.Now().Add(b.idle))
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended = true
		_ = b.deadline(time.Time{})
	}
	return n, err
}
