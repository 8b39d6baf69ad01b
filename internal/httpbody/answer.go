package httpbody

import (
	"net/http"
	"time"
)

// A client that takes an answer of any length must take each part of it in partTime: about 17 KB/s.
const (
	partBytes = 256 << 10
	partTime  = 15 * time.Second
)

// An Answer writes the body of an answer of any length. A write to a client that takes less than about 17 KB/s fails,
// so that it holds its place for a limited time.
type Answer struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

// NewAnswer returns the body of an answer. Call End once all of it is written.
func NewAnswer(w http.ResponseWriter) Answer { return Answer{w, http.NewResponseController(w)} }

// Write writes all of p.
func (a Answer) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		_ = a.ctl.SetWriteDeadline(time.Now().Add(partTime)) // not supported by test recorders
		var k int
		k, err = a.w.Write(p[n:min(len(p), n+partBytes)])
		n += k
	}
	return n, err
}

// End leaves the connection as it was, for the next request on it.
func (a Answer) End() { _ = a.ctl.SetWriteDeadline(time.Time{}) }
