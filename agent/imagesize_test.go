package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
)

// An image's size is what it unpacks to, in every store that an engine may have: neither what was downloaded, as Docker
// 28 counts with containerd's store, nor the sum of both, as Docker 29 does. It is the same when the image is there
// already, and for an agent that has lost its list of images.
func TestAnImagesSizeIsUnpacked(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	info, err := os.Stat(built.job)
	if err != nil {
		t.Fatal(err)
	}
	unpacked := info.Size()
	puller := func() *image.Puller {
		p, err := image.New(image.Config{
			Daemon: h.engine,
			Dir:    t.TempDir(),
			Prefix: "muster-size-" + container.Host8(h.id),
			Allow:  []string{filepath.Dir(filepath.Dir(h.image))},
			Free:   func() (int64, error) { return 1 << 40, nil },
			Now:    time.Now,
			Log:    h.log,
		})
		if err != nil {
			t.Fatal(err)
		}
		go p.Serve(t.Context())
		return p
	}
	check := func(what string, size int64) {
		t.Helper()
		// A file system of a snapshot adds a few blocks; the packed program is about half of the program.
		if size < unpacked || size > unpacked+unpacked/8 {
			t.Errorf("%s: %d bytes, want about %d", what, size, unpacked)
		}
	}
	first := puller()
	t.Cleanup(func() {
		_, err := first.GC(context.Background(), nil, -time.Second, 0)
		left, lerr := h.engine.ListImages(context.Background(), "muster-size-"+container.Host8(h.id)+"/image")
		if err = errors.Join(err, lerr); err != nil || len(left) > 0 {
			t.Error(err, left)
		}
	})
	for _, what := range []string{"pulled", "already there"} {
		img, err := first.Pull(t.Context(), image.Request{Image: h.image, MaxBytes: unpacked + unpacked/4},
			func(agentapi.Progress) {})
		if err != nil {
			t.Fatal(what, err)
		}
		check(what, img.Bytes)
	}
	second := puller()
	if _, err := second.GC(t.Context(), nil, time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	img, err := second.Pull(t.Context(), image.Request{Image: h.image, MaxBytes: unpacked + unpacked/4},
		func(agentapi.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	check("found", img.Bytes)
}
