package image

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// proxy is the registry that the Docker daemon sees: on loopback, read-only, with one repository per running pull. The
// random name of a repository is the right to read it, because any process on the machine can reach the port, and the
// image may be a renter's private one.
type proxy struct {
	listener net.Listener
	server   *http.Server

	mu    sync.Mutex
	pulls map[string]*flight
}

func newProxy() (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for Docker's pulls: %w", err)
	}
	p := &proxy{listener: l, pulls: map[string]*flight{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /v2/{pull}/image/manifests/{digest}", p.manifest)
	mux.HandleFunc("GET /v2/{pull}/image/blobs/{digest}", p.blob)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return p, nil
}

func (p *proxy) serve() error {
	if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open creates a repository for a flight, which exists until done is called, and returns the reference that Docker
// should pull.
func (p *proxy) open(f *flight) (ref string, done func()) {
	var b [16]byte
	rand.Read(b[:]) // never fails
	name := "p" + hex.EncodeToString(b[:])
	p.mu.Lock()
	p.pulls[name] = f
	p.mu.Unlock()
	return fmt.Sprintf("%s/%s/image@%s", p.listener.Addr(), name, f.found.served), func() {
		p.mu.Lock()
		delete(p.pulls, name)
		p.mu.Unlock()
	}
}

// flight returns the pull that a request is for; nil if there is none, or if it was given up.
func (p *proxy) flight(r *http.Request) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.pulls[r.PathValue("pull")]; f != nil && !f.givenUp() {
		return f
	}
	return nil
}

func (p *proxy) manifest(w http.ResponseWriter, r *http.Request) {
	f := p.flight(r)
	if f == nil || r.PathValue("digest") != f.found.served.String() {
		http.NotFound(w, r)
		return
	}
	head(w, string(f.found.media), f.found.served, int64(len(f.found.manifest)))
	if r.Method == http.MethodGet {
		w.Write(f.found.manifest)
	}
}

func (p *proxy) blob(w http.ResponseWriter, r *http.Request) {
	f := p.flight(r)
	if f == nil {
		http.NotFound(w, r)
		return
	}
	if r.PathValue("digest") == f.found.configID.String() {
		head(w, "application/octet-stream", f.found.configID, int64(len(f.found.config)))
		if r.Method == http.MethodGet {
			w.Write(f.found.config)
		}
		return
	}
	for i, l := range f.found.layers {
		if l.Digest.String() != r.PathValue("digest") {
			continue
		}
		head(w, "application/octet-stream", l.Digest, l.Size)
		if r.Method == http.MethodGet {
			f.serveLayer(r.Context(), w, i)
		}
		return
	}
	http.NotFound(w, r)
}

func head(w http.ResponseWriter, media string, digest v1.Hash, size int64) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Docker-Content-Digest", digest.String())
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
}

// serveLayer forwards a layer as it arrives, verified: a wrong digest, a wrong length or too many unpacked bytes cut
// the response short, so that Docker never gets the complete layer.
func (f *flight) serveLayer(ctx context.Context, w http.ResponseWriter, i int) {
	err := func() error {
		layer, err := f.found.image.LayerByDigest(f.found.layers[i].Digest)
		if err != nil {
			return &fromRegistry{f.found.registry, err}
		}
		body, err := layer.Compressed() // verifies digest and length at its end
		if err != nil {
			return &fromRegistry{f.found.registry, err}
		}
		defer body.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(ctx, func() { body.Close() })() // a silent registry would block the read
		go func() {
			select {
			case <-f.ended:
				cancel()
			case <-ctx.Done():
			}
		}()
		f.restart(i)
		measured, done := f.pace.from(body)
		defer done()
		unpacked := newMeasure(ctx, f.unpacked)
		// Send the last bytes only when the complete layer is verified.
		held := &holdBack{w: w}
		_, err = io.Copy(io.MultiWriter(unpacked, held, counter{f, i}), measured)
		if merr := unpacked.Close(); err == nil {
			err = merr
		}
		if err == nil {
			err = held.flush()
		}
		if err != nil {
			unpacked.tally.refund()
		}
		return err
	}()
	if err != nil {
		f.note(err)
		panic(http.ErrAbortHandler) // the only way to truncate a response of known length
	}
}

// holdBack keeps the last byte until flush.
type holdBack struct {
	w    io.Writer
	last []byte
}

func (h *holdBack) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if err := h.flush(); err != nil {
		return 0, err
	}
	if _, err := h.w.Write(b[:len(b)-1]); err != nil {
		return 0, err
	}
	h.last = append(h.last[:0], b[len(b)-1])
	return len(b), nil
}

func (h *holdBack) flush() error {
	if len(h.last) == 0 {
		return nil
	}
	_, err := h.w.Write(h.last)
	h.last = h.last[:0]
	return err
}

type counter struct {
	f *flight
	i int
}

func (c counter) Write(b []byte) (int, error) {
	c.f.count(c.i, int64(len(b)))
	return len(b), nil
}
