package volume

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume/volumetest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// platform is the control plane of a test.
type platform struct{ *volumetest.Platform }

func newPlatform(t *testing.T) platform { return platform{volumetest.New(t)} }

var domainKey = volumetest.Key

func (p platform) config(root string) Config {
	return Config{
		Ref: agentapi.LeaseRef{Lease: "ls_test", Epoch: 1}, Root: root, Server: p.Serve, HTTP: http.DefaultClient,
		BootMS: func() int64 { return 1_000_000 }, Log: slog.New(slog.DiscardHandler), Least: time.Millisecond,
		Mount: agentapi.Mount{Path: "/data", Volume: "vol_test", Mode: agentapi.MountRW, Key: domainKey},
	}
}

// attach opens the volume at a path and restores it.
func (p platform) attach(t *testing.T, root string) *Volume {
	t.Helper()
	v, err := Open(t.Context(), p.config(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	if err := v.Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return v
}

func newRequest() Request {
	return Request{ID: "snp_" + id.New[id.Lease]().String(), Cause: agentapi.SnapshotByInterval}
}

func (v *Volume) mustSnapshot(t *testing.T) Result {
	t.Helper()
	r, err := v.Snapshot(t.Context(), newRequest())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// listing describes everything below a folder: names, kinds, content, owners, permissions, times, attributes.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	inodes := map[uint64]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %v %d", strings.TrimPrefix(path, dir), info.Mode(), info.ModTime().UnixNano())
		st := statOf(info)
		fmt.Fprintf(&b, " %d:%d", st.Uid, st.Gid)
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %q", target)
		case info.Mode().IsRegular():
			if info.Size() < 1<<30 {
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %d %x", len(content), sha256.Sum256(content))
			} else {
				fmt.Fprintf(&b, " %d", info.Size())
			}
			if st.Nlink > 1 {
				if inodes[st.Ino] == "" {
					inodes[st.Ino] = path
				}
				fmt.Fprintf(&b, " = %q", strings.TrimPrefix(inodes[st.Ino], dir))
			}
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func dataOf(root string) string { return scratch.Data(root) }

func serveOn(t *testing.T, s *http.Server) string {
	t.Helper()
	h := httptest.NewServer(s.Handler)
	t.Cleanup(h.Close)
	return h.URL
}
