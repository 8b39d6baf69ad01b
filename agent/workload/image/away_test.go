package image

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// A registry that does not answer is distinguished from one that refuses, and from a daemon that does not answer.
func TestARegistryThatIsAway(t *testing.T) {
	t.Parallel()
	closed := testnet.Address(t)
	down := serve(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	})
	busy := serve(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	})
	blobs := serve(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	e := setUp(t, closed, down, busy, blobs)
	push(t, blobs+"/app:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": nil})))
	for registry, says := range map[string]string{
		closed: "cannot be connected to",
		down:   "error of its own (503)",
		busy:   "limits how often",
		blobs:  "error of its own (502)",
	} {
		_, err := e.puller.Pull(t.Context(), Request{
			Image:    registry + "/app:1",
			MaxBytes: 1 << 20,
		}, func(agentapi.Progress) {})
		var a *Away
		var final *Error
		if !errors.As(err, &a) || errors.As(err, &final) || a.Registry != registry || !strings.Contains(a.Sentence(), says) {
			t.Errorf("%s: %v", says, err)
			continue
		}
		if strings.Contains(a.Sentence(), "dial tcp") {
			t.Error(a.Sentence())
		}
	}
}
