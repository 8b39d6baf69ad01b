package store_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/s3test"
)

func open(t *testing.T, cfg store.S3Config) *store.S3 {
	t.Helper()
	s, err := store.OpenS3(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// throughServer is the store with a proxy between.
func throughServer(t *testing.T, s *store.S3) *store.Proxy {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	p, err := store.NewProxy(s, srv.URL, []byte(strings.Repeat("s", 32)))
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle(store.SignedPath, p.Handler())
	return p
}

// What every store must do, a real S3 store does; with a prefix, and with a proxy between, too.
func TestS3(t *testing.T) {
	t.Parallel()
	g := s3test.Start(t)
	t.Run("direct", func(t *testing.T) {
		t.Parallel()
		store.CheckStore(t, open(t, g.Config))
	})
	t.Run("prefix", func(t *testing.T) {
		t.Parallel()
		cfg := g.Config
		cfg.Prefix = "a/b"
		store.CheckStore(t, open(t, cfg))
	})
	t.Run("proxy", func(t *testing.T) {
		t.Parallel()
		cfg := g.Config
		cfg.Prefix = "proxied"
		store.CheckStore(t, throughServer(t, open(t, cfg)))
	})
}

// A store that stores whatever it is sent is named by the probe, and can be used through a proxy.
func TestACarelessStore(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(&careless{objects: map[string][]byte{}})
	t.Cleanup(srv.Close)
	s := open(t, store.S3Config{Endpoint: srv.URL, Bucket: "careless", Access: "a", Secret: "s"})
	var lack *store.Lack
	if err := s.Probe(t.Context()); !errors.As(err, &lack) ||
		!strings.Contains(err.Error(), "refuse a body that was not signed") {
		t.Fatalf("the probe: %v", err)
	}
	store.CheckPuts(t, throughServer(t, s))
}

// Probe names the setting of a store that is wrong.
func TestProbeNames(t *testing.T) {
	t.Parallel()
	g := s3test.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for want, change := range map[string]func(*store.S3Config){
		"NoSuchBucket,bucket":        func(c *store.S3Config) { c.Bucket = "none" },
		"signature,Signature,Denied": func(c *store.S3Config) { c.Secret = "wrong" },
		"access,Access,Denied":       func(c *store.S3Config) { c.Access = "nobody" },
		"does not answer":            func(c *store.S3Config) { c.Endpoint = "http://127.0.0.1:1" },
	} {
		cfg := g.Config
		change(&cfg)
		s := open(t, cfg)
		err := s.Probe(ctx)
		var lack *store.Lack
		if errors.As(err, &lack) { // as a server does
			err = throughServer(t, s).Probe(ctx)
		}
		if err == nil || !containsOne(err.Error(), strings.Split(want, ",")) {
			t.Errorf("want %s: %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), "X-Amz-Signature") {
			t.Errorf("the error has a signed URL: %v", err)
		}
	}
}

func containsOne(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// careless is an S3 store that checks no more of a PUT than that it was signed for one.
type careless struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (c *careless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		if r.URL.Query().Get("X-Amz-SignedHeaders") == "host" { // it was signed for a GET
			w.WriteHeader(http.StatusForbidden)
			return
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
			b = unchunk(b)
		}
		c.objects[r.URL.Path] = b
		w.Header().Set("ETag", `"x"`)
	case http.MethodHead, http.MethodGet:
		b, ok := c.objects[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"x"`)
		http.ServeContent(w, r, "", time.Now(), strings.NewReader(string(b)))
	case http.MethodDelete:
		if r.URL.Query().Has("X-Amz-Signature") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		delete(c.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}
}

// unchunk returns the bytes of a body whose parts are signed one by one: LENGTH;SIGNATURE CRLF BYTES CRLF …
func unchunk(b []byte) (out []byte) {
	for {
		head, rest, ok := strings.Cut(string(b), "\r\n")
		size, _, _ := strings.Cut(head, ";")
		n, err := strconv.ParseInt(size, 16, 32)
		if !ok || err != nil || n == 0 || int(n) > len(rest) {
			return out
		}
		out = append(out, rest[:n]...)
		b = []byte(strings.TrimPrefix(rest[n:], "\r\n"))
	}
}
