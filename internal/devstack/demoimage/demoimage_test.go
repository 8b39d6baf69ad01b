package demoimage

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/musterhq/muster/internal/devstack/registry"
)

// The image keeps its digest over builds, pushes and restarts of the registry.
func TestDigestStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	job := filepath.Join(dir, "job")
	if err := os.WriteFile(job, []byte("\x7fELF not really"), 0o755); err != nil {
		t.Fatal(err)
	}
	open := func(listen string) *registry.Registry {
		r, err := registry.Start(t.Context(), registry.Config{
			Dir:    filepath.Join(dir, "registry"),
			Listen: listen,
			Log:    slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open("127.0.0.1:0")
	addr := r.Addr()
	ref, digest, err := Push(t.Context(), addr, job)
	if err != nil || ref != addr+"/muster/demo:latest" {
		t.Fatalf("push: %s, %v", ref, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	r = open(addr)
	defer r.Close()
	for _, s := range []string{ref, addr + "/" + Repository + "@" + digest} {
		parsed, err := name.ParseReference(s, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		img, err := remote.Image(parsed, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatalf("after a restart, %s: %v", s, err)
		}
		got, err := img.Digest()
		if err != nil || got.String() != digest {
			t.Errorf("%s has digest %s, %v; pushed was %s", s, got, err, digest)
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 2 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		for _, l := range layers {
			if rc, err := l.Uncompressed(); err != nil {
				t.Errorf("a layer is lost: %v", err)
			} else {
				rc.Close()
			}
		}
	}
	if _, again, err := Push(t.Context(), addr, job); err != nil || again != digest {
		t.Errorf("pushed again: %s, %v; before %s", again, err, digest)
	}
}

func TestPushRefuses(t *testing.T) {
	t.Parallel()
	if _, _, err := Push(t.Context(), "127.0.0.1:1", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no program: no error")
	}
	if r, err := registry.Start(t.Context(), registry.Config{
		Dir:    t.TempDir(),
		Listen: "0.0.0.0:0",
		Log:    slog.New(slog.DiscardHandler),
	}); err == nil {
		r.Close()
		t.Error("an open registry listens beyond loopback")
	}
}
