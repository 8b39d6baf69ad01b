package server

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// compressMinSize is the size in bytes below which a response is sent as it is: it fits one packet anyway.
const compressMinSize = 1024

// compressedTypes are the media types of responses that compress sends as gzip. Logs (text/plain) and live pages
// (text/event-stream) are streams, and fonts are compressed already.
var compressedTypes = []string{
	"text/html", "text/css", "text/javascript", "text/csv", "text/markdown",
	"application/json", "application/problem+json", "application/yaml", "image/svg+xml",
}

// compress sends the responses of next as gzip to clients that accept it. Up to 32 random bytes hide the exact length
// of a response, so that no one can guess its content by measuring how well it compresses together with parameters of
// their choice (the BREACH attack). It panics if the options above are wrong.
func compress(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(compressMinSize),
		gzhttp.ContentTypes(compressedTypes),
		gzhttp.RandomJitter(32, 0, false),
	)
	if err != nil {
		panic(err)
	}
	compressed := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if streams(r) {
			next.ServeHTTP(w, r)
			return
		}
		compressed.ServeHTTP(w, r)
	})
}

// streams reports whether the response to r may be a stream whose headers have to leave before its first byte does,
// which the compressing writer would delay: a WebSocket, a live page, or a log that is followed.
func streams(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream") ||
		strings.HasSuffix(r.URL.Path, "/logs")
}
