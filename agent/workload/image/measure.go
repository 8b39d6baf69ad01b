package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"
	"math"
	"path"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// budget is how many bytes all layers of an image together may still unpack to, as archives and as files on a disk. The
// two differ: a sparse file of a terabyte takes a few bytes in an archive, and so do a thousand folders in one file's
// path.
type budget struct{ archives, files, of atomic.Int64 }

func newBudget(n int64) *budget {
	b := &budget{}
	b.archives.Store(n)
	b.files.Store(n)
	b.of.Store(n)
	return b
}

// tally is what one layer has taken from a budget.
type tally struct {
	b               *budget
	archives, files int64
	folders         map[uint64]struct{} // folders that the layer has created so far, by a hash of their names
}

// These are the size of a disk block, the overhead of a file, and the number of folders that are remembered; beyond
// that number every folder in a path counts as new.
const (
	block      = 4096
	inode      = 256
	maxFolders = 1 << 20
	maxPath    = 4096 // file systems accept no longer paths
)

func (t *tally) Write(p []byte) (int, error) {
	t.archives += int64(len(p))
	if t.b.archives.Add(-int64(len(p))) < 0 {
		return 0, t.over()
	}
	return len(p), nil
}

func (t *tally) over() error {
	return tooBig("it unpacks to more than %s, the node's disk", gb(t.b.of.Load()))
}

// add counts the disk space that an archive's entry will take.
func (t *tally) add(h *tar.Header) error {
	n := int64(inode)
	switch {
	case h.Size > math.MaxInt64/4:
		return t.over()
	case h.Typeflag == tar.TypeDir:
		t.folder(path.Clean(h.Name))
	default:
		n += (h.Size + block - 1) / block * block
	}
	if len(h.Name) > maxPath {
		return refused("a layer has a path of %d bytes", len(h.Name))
	}
	for dir := path.Dir(path.Clean(h.Name)); dir != "." && dir != "/" && t.folder(dir); {
		n += block
		dir = path.Dir(dir)
	}
	if h.Typeflag == tar.TypeDir {
		n += block
	}
	t.files += n
	if t.b.files.Add(-n) < 0 {
		return t.over()
	}
	return nil
}

var folderSeed = maphash.MakeSeed()

// folder records a folder and reports whether it is new.
func (t *tally) folder(name string) bool {
	key := maphash.String(folderSeed, strings.Trim(name, "/"))
	if _, known := t.folders[key]; known {
		return false
	}
	if len(t.folders) < maxFolders {
		t.folders[key] = struct{}{}
	}
	return true
}

// refund returns what was taken: the layer was not delivered, and will be requested again.
func (t *tally) refund() {
	t.b.archives.Add(t.archives)
	t.b.files.Add(t.files)
	t.archives, t.files = 0, 0
}

// measure unpacks what is written to it, as fast as it is written, to find its unpacked size before the daemon fills
// the disk with it.
type measure struct {
	w      *io.PipeWriter
	tally  *tally
	result chan error
}

func newMeasure(ctx context.Context, b *budget) *measure {
	r, w := io.Pipe()
	m := &measure{w: w, tally: &tally{b: b, folders: map[uint64]struct{}{}}, result: make(chan error, 1)}
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		err := m.tally.unpack(r)
		r.CloseWithError(err) // returned to a writer that continues; nil after a proper end
		m.result <- err
	}()
	return m
}

func (m *measure) Write(b []byte) (int, error) { return m.w.Write(b) }

// Close ends the input and returns what was wrong with it.
func (m *measure) Close() error {
	m.w.Close()
	return <-m.result
}

func (t *tally) unpack(from io.Reader) error {
	br := bufio.NewReaderSize(from, 64<<10)
	unpacked, end, err := decompress(br)
	if err != nil {
		return err
	}
	defer end()
	all := io.TeeReader(unpacked, t)
	for archive := tar.NewReader(all); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			if _, err := io.Copy(io.Discard, all); err != nil { // data after the end of the archive
				return err
			}
			_, err := io.Copy(io.Discard, br) // data after the end of the compressed stream
			return err
		case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
			return refused("a layer is not a tar archive: %v", err)
		case err != nil:
			return err
		}
		if err := t.add(h); err != nil {
			return err
		}
	}
}

// decompress detects a layer's compression as Docker does, by its first bytes and not by its media type. Docker also
// unpacks bzip2 and xz, which no image builder uses: such a layer is refused, and so is an unknown format.
func decompress(br *bufio.Reader) (r io.Reader, end func(), err error) {
	head, err := br.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case len(head) == 0:
		return br, func() {}, nil
	case bytes.HasPrefix(head, []byte("BZh")), bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		// Check this before tar: a file can be both.
		return nil, nil, refused("a layer is compressed with bzip2 or xz; gzip and zstd are taken")
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, refused("a layer is not what it says: %v", err)
		}
		return z, func() {}, nil
	case isZstd(head) && isTar(head): // older daemons do not know zstd, and would unpack the other
		return nil, nil, refused("a layer is both zstd and a tar archive")
	case isZstd(head):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20),
			zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, refused("a layer is not what it says: %v", err)
		}
		return z, z.Close, nil
	}
	if !isTar(head) {
		return nil, nil, refused("a layer is neither a tar archive nor compressed with gzip or zstd")
	}
	return br, func() {}, nil
}

// isTar reports whether data that begins so is a tar archive: a header with a correct checksum, or the end of an empty
// archive.
func isTar(head []byte) bool {
	_, err := tar.NewReader(bytes.NewReader(head)).Next()
	return len(head) >= 512 && !errors.Is(err, tar.ErrHeader)
}

// isZstd reports whether data that begins so is zstd: a frame, or a skippable frame before it (RFC 8878, 3.1).
func isZstd(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	magic := binary.LittleEndian.Uint32(head)
	return magic == 0xfd2fb528 || magic&^0xf == 0x184d2a50
}
