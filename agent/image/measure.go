package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// budget is how many bytes an image may still unpack to, all its layers together.
type budget struct{ left, of atomic.Int64 }

func newBudget(n int64) *budget {
	b := &budget{}
	b.left.Store(n)
	b.of.Store(n)
	return b
}

func (b *budget) Write(p []byte) (int, error) {
	if b.left.Add(-int64(len(p))) < 0 {
		return 0, tooBig("it unpacks to more than %s, the node's disk", gb(b.of.Load()))
	}
	return len(p), nil
}

// measure unpacks what is written to it, as fast as it is written, to see how much that is. The daemon would find out
// only with the disk full.
type measure struct {
	w      *io.PipeWriter
	result chan error
}

func newMeasure(ctx context.Context, b *budget) *measure {
	r, w := io.Pipe()
	m := &measure{w: w, result: make(chan error, 1)}
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		err := unpack(b, r)
		r.CloseWithError(err) // a writer that goes on gets it; after a good end there is none
		m.result <- err
	}()
	return m
}

func (m *measure) Write(b []byte) (int, error) { return m.w.Write(b) }

// Close says that all is written, and returns what was wrong with it.
func (m *measure) Close() error {
	m.w.Close()
	return <-m.result
}

func unpack(to io.Writer, from io.Reader) error {
	br := bufio.NewReaderSize(from, 64<<10)
	magic, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var r io.Reader = br
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return refused("a layer is not what it says: %v", err)
		}
		r = z
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return refused("a layer is not what it says: %v", err)
		}
		defer z.Close()
		r = z
	}
	if _, err := io.Copy(to, r); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, br) // what follows the archive
	return err
}
