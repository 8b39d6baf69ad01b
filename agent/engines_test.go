//go:build docker

package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// A pull that is given up half way leaves nothing on the engine's disk, whichever store the engine has.
func TestEngineKeepsNothingOfAPullThatIsGivenUp(t *testing.T) {
	h := newHost(t)
	const size = 64 << 20
	half := make(chan struct{})
	reg := registry.New()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			rec := httptest.NewRecorder()
			reg.ServeHTTP(rec, r)
			if b := rec.Body.Bytes(); len(b) > size/2 {
				for k, v := range rec.Header() {
					w.Header()[k] = v
				}
				_, _ = io.Copy(w, bytes.NewReader(b[:size/2]))
				w.(http.Flusher).Flush()
				select {
				case <-half:
				default:
					close(half)
				}
				<-r.Context().Done()
				return
			}
			_, _ = w.Write(rec.Body.Bytes())
			return
		}
		reg.ServeHTTP(w, r)
	}))
	defer srv.Close()
	ref := srv.Listener.Addr().String() + "/test/big:1"
	noise := make([]byte, size)
	rand.Read(noise)
	pushProgram(t, ref, noise, nil)
	p, err := image.New(image.Config{
		Daemon: h.engine,
		Dir:    t.TempDir(),
		Prefix: "muster-given-up-" + container.Host8(h.id),
		Allow:  []string{srv.Listener.Addr().String()},
		Free:   func() (int64, error) { return 1 << 40, nil },
		Now:    time.Now,
		Log:    h.log,
	})
	if err != nil {
		t.Fatal(err)
	}
	go p.Serve(t.Context())
	before := onDisk(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Pull(ctx, image.Request{Image: ref, MaxBytes: 1 << 30}, func(agentapi.Progress) {})
		done <- err
	}()
	<-half
	cancel()
	if err := <-done; err == nil {
		t.Fatal("it was pulled")
	}
	poll(t, "the half that was pulled is gone", func() bool { return onDisk(t)-before < size/8 })
}

// onDisk is how many bytes the engine's folder takes, but for its logs.
func onDisk(t *testing.T) int64 {
	t.Helper()
	root := os.Getenv("MUSTER_TEST_ENGINE_ROOT")
	if root == "" {
		t.Fatal("MUSTER_TEST_ENGINE_ROOT is not set: run this test with scripts/with-engine")
	}
	sum, err := testnet.Stored(root)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
