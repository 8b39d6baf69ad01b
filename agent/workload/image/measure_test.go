package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhq/muster/internal/agentapi"
)

// archive is a tar of entries; the content of a file is zeros.
func archive(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		err := w.WriteHeader(h)
		if err == nil {
			_, err = io.CopyN(w, zeroes{}, h.Size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// sparse is an archive of a file of size bytes that is all holes (GNU's format, which has room for the size in octal).
func sparse(size int64) []byte {
	b := make([]byte, 512+1024)
	put := func(at, n int, v int64) { copy(b[at:], fmt.Sprintf("%0*o\x00", n-1, v)) }
	copy(b, "holes")
	put(100, 8, 0o644)
	put(108, 8, 0)
	put(116, 8, 0)
	put(124, 12, 0)
	put(136, 12, 0)
	b[156] = 'S'
	copy(b[257:], "ustar  \x00")
	put(483, 12, size)
	return sealed(b)
}

// sealed has the checksum of its first header.
func sealed(b []byte) []byte {
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:512] {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func gz(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zst(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}

// skippable is a frame that zstd passes over.
func skippable(n int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0x184d2a53)
	return append(binary.LittleEndian.AppendUint32(b, uint32(n)), make([]byte, n)...)
}

// Whatever a layer declares and however it is packed, no more than the bound becomes files on the disk.
func TestALayersBound(t *testing.T) {
	t.Parallel()
	const bound = 4 << 20
	file := func(name string, size int64) *tar.Header { return &tar.Header{Name: name, Mode: 0o644, Size: size} }
	var folders, files, deep []*tar.Header
	for i := range 2000 {
		folders = append(folders, &tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%d/", i), Mode: 0o755})
		files = append(files, file(fmt.Sprintf("f%d", i), 1))
	}
	for i := range 4 {
		deep = append(deep, file(fmt.Sprintf("%d/%s", i, strings.Repeat("x/", 1000)), 0))
	}
	var ordinary []*tar.Header // as an image has them: many files in one deep folder that no entry names
	for i := range 500 {
		ordinary = append(ordinary, file(fmt.Sprintf("usr/lib/python3/dist-packages/a/b/c/d/e/f%d", i), 100))
	}
	small, big := archive(t, file("a", 1000)), archive(t, file("a", 8<<20))
	bzip := append([]byte("BZh9"), small...)
	both := append([]byte(nil), small...)
	copy(both, "BZh9")
	zstdTar := append([]byte(nil), sparse(1<<40)...)
	copy(zstdTar, []byte{0x28, 0xb5, 0x2f, 0xfd, 0})
	for _, tc := range []struct {
		name   string
		layer  []byte
		reason string
	}{
		{"empty", nil, ""},
		{"tar", small, ""},
		{"gzip", gz(t, small), ""},
		{"gzip in two parts", append(gz(t, small[:100]), gz(t, small[100:])...), ""},
		{"zstd", zst(t, small), ""},
		{"zstd after a skippable frame", append(skippable(100), zst(t, small)...), ""},
		{"ordinary", gz(t, archive(t, ordinary...)), ""},
		{"the end of an archive only", make([]byte, 1024), ""},
		{"tar too big", big, agentapi.ReasonImageTooBig},
		{"gzip bomb", gz(t, big), agentapi.ReasonImageTooBig},
		{"zstd bomb", zst(t, big), agentapi.ReasonImageTooBig},
		{"zstd bomb after a skippable frame", append(skippable(100), zst(t, big)...), agentapi.ReasonImageTooBig},
		{"zeros after the archive's end", gz(t, append(small, make([]byte, 8<<20)...)), agentapi.ReasonImageTooBig},
		{"sparse file", sparse(1 << 30), agentapi.ReasonImageTooBig},
		{"sparse file, packed", gz(t, sparse(1<<30)), agentapi.ReasonImageTooBig},
		{"folders", gz(t, archive(t, folders...)), agentapi.ReasonImageTooBig},
		{"small files", gz(t, archive(t, files...)), agentapi.ReasonImageTooBig},
		{"folders in paths", gz(t, archive(t, deep...)), agentapi.ReasonImageTooBig},
		{"a path no file system takes", gz(t, archive(t, file(strings.Repeat("x/", 4000), 0))), agentapi.ReasonImageRefused},
		{"bzip2", bzip, agentapi.ReasonImageRefused},
		{"bzip2 that is a tar, too", sealed(both), agentapi.ReasonImageRefused},
		{"xz", append([]byte("\xfd7zXZ\x00"), small...), agentapi.ReasonImageRefused},
		{"zstd that is a tar, too", sealed(zstdTar), agentapi.ReasonImageRefused},
		{"text", []byte(strings.Repeat("no archive ", 100)), agentapi.ReasonImageRefused},
		{"text in gzip", gz(t, []byte(strings.Repeat("no archive ", 100))), agentapi.ReasonImageRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBudget(bound)
			m := newMeasure(t.Context(), b)
			_, err := io.Copy(m, bytes.NewReader(tc.layer))
			if cerr := m.Close(); err == nil {
				err = cerr
			}
			var why *Error
			if tc.reason == "" && err != nil || tc.reason != "" && (!errors.As(err, &why) || why.Reason != tc.reason) {
				t.Errorf("%d bytes: %v", len(tc.layer), err)
			}
			m.tally.refund()
			if b.archives.Load() != bound || b.files.Load() != bound {
				t.Error("a layer that is asked for again counts twice")
			}
		})
	}
}

// A disk that runs full during a pull ends it, whatever the image has declared.
func TestAPullLeavesTheDiskItsRoom(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	push(t, reg+"/slow:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": nil})))
	e.daemon.gate = make(chan struct{}) // the daemon unpacks forever
	looks := 0
	e.puller.cfg.Free = func() (int64, error) { // one look before the pull
		if looks++; looks == 1 {
			return 1 << 40, nil
		}
		return 1e9, nil
	}
	e.pull(Request{Image: reg + "/slow:1"}, agentapi.ReasonNoDisk)
}

// An image that the daemon makes more of than was measured is refused, and removed.
func TestAnImageThatGrewIsRemoved(t *testing.T) {
	t.Parallel()
	reg := serve(t, nil)
	e := setUp(t, reg)
	push(t, reg+"/grown:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": nil})))
	e.daemon.size = 1 << 40
	e.pull(Request{Image: reg + "/grown:1", MaxBytes: 1 << 30}, agentapi.ReasonImageTooBig)
	e.daemon.mu.Lock()
	defer e.daemon.mu.Unlock()
	if len(e.daemon.tags) != 0 {
		t.Errorf("the daemon keeps %v", e.daemon.tags)
	}
}
