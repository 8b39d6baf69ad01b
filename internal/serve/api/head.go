package api

import (
	"errors"
	"net/http"
)

// errHead ends a stream whose body is not sent.
var errHead = errors.New("the answer to HEAD has no body")

// headWriter sends the header of a stream, and then fails, so that the handler reads no more of what it would send.
type headWriter struct {
	http.ResponseWriter
	sent bool
}

func (h *headWriter) WriteHeader(status int) {
	h.sent = true
	h.ResponseWriter.WriteHeader(status)
}

func (h *headWriter) Write([]byte) (int, error) {
	if !h.sent {
		h.WriteHeader(http.StatusOK)
	}
	return 0, errHead
}

func (h *headWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }
