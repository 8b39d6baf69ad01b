// Package httpbody bounds the bodies of HTTP requests, in bytes and in time, before any handler reads them.
//
// net/http reads a body only when a handler asks for it, but then without a limit: http.Request.FormValue parses a
// multipart body and writes its files to the temporary directory, and a client that stops sending holds its handler for
// ever. Every listener of a server puts Limit around its handlers, so that no handler has to remember it.
package httpbody

import (
	"io"
	"net/http"
	"time"
)

// DefaultTimeout is how long a client may take to send a whole body.
const DefaultTimeout = 30 * time.Second

// Limit answers 413 to a request whose body is larger than maxBytes, 400 to one that has a body where HTTP gives it no
// meaning (GET, HEAD), and fails reads that go on for longer than timeout. A body without a declared length is cut at
// maxBytes. WebSockets are not affected: their handshake has no body.
func Limit(next http.Handler, maxBytes int64, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !has(r) {
			next.ServeHTTP(w, r)
			return
		}
		ctl := http.NewResponseController(w)
		_ = ctl.SetReadDeadline(time.Now().Add(timeout)) // not supported by test recorders
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			refuse(w, http.StatusBadRequest, "a "+r.Method+" request has no body here")
		case r.ContentLength > maxBytes:
			refuse(w, http.StatusRequestEntityTooLarge, "the request's body is too large")
		default:
			r.Body = &body{ReadCloser: http.MaxBytesReader(w, r.Body, maxBytes), deadline: ctl.SetReadDeadline}
			next.ServeHTTP(w, r)
		}
	})
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

// refuse answers and closes the connection, so that the server does not read what is left of the body.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
}

// body moves the connection's read deadline along with its reads. After the last one the deadline is lifted: the
// server watches the connection to see whether the client has gone, and a deadline would look as if it had.
type body struct {
	io.ReadCloser
	deadline func(time.Time) error
	idle     time.Duration // 0: the deadline stays where it was set
}

func (b *body) Read(p []byte) (int, error) {
	if b.idle > 0 {
		_ = b.deadline(time.Now().Add(b.idle))
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.deadline(time.Time{})
	}
	return n, err
}
