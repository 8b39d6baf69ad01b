package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// errClosed is the error of using a group that is closed.
var errClosed = errors.New("the restore is over")

// cache keeps the packs that this rank owns: in files without names, which vanish with the process. It gets each one
// once, however many request it at the same time.
type cache struct {
	dir   *os.File // nil: nothing is kept
	limit int64    // bytes
	fetch func(ctx context.Context, n int64) ([]byte, error)
	ctx   context.Context // of fetches
	stop  context.CancelFunc

	running sync.WaitGroup // fetches, which use dir

	mu    sync.Mutex
	size  int64
	packs map[int64]*cached
	order []int64 // of the packs that are kept, the oldest first
}

// cached is a pack that is on its way, or kept.
type cached struct {
	done  chan struct{}
	err   error
	bytes []byte // for those that waited for it; nil once it is kept
	file  *os.File
	size  int64
	users int
	gone  bool // evicted: closed by its last user
}

func newCache(dir *os.File, limit int64, fetch func(context.Context, int64) ([]byte, error)) *cache {
	c := &cache{dir: dir, limit: limit, fetch: fetch, packs: map[int64]*cached{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// use returns a pack, which the caller releases.
func (c *cache) use(ctx context.Context, n int64) (*cached, error) {
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return nil, errClosed
	}
	p := c.packs[n]
	if p == nil {
		p = &cached{done: make(chan struct{})}
		c.packs[n] = p
		c.running.Go(func() { c.get(n, p) })
	}
	p.users++
	c.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		c.release(p)
		return nil, ctx.Err()
	}
	if p.err != nil {
		c.release(p)
		return nil, p.err
	}
	return p, nil
}

// get gets a pack and keeps it if there is room.
func (c *cache) get(n int64, p *cached) {
	b, err := c.fetch(c.ctx, n)
	var f *os.File
	if err == nil && c.dir != nil && int64(len(b)) <= c.limit {
		f = keep(c.dir, b) // without a file it is served from memory, and fetched again for those who come later
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(p.done)
	p.err, p.file, p.size = err, f, int64(len(b))
	if f == nil || c.ctx.Err() != nil {
		p.bytes = b
		delete(c.packs, n)
		c.drop(p)
		return
	}
	if p.users > 0 {
		p.bytes = b
	}
	c.size += p.size
	c.order = append(c.order, n)
	for c.size > c.limit && len(c.order) > 1 {
		old := c.packs[c.order[0]]
		delete(c.packs, c.order[0])
		c.order = c.order[1:]
		c.size -= old.size
		c.drop(old)
	}
}

// keep writes a pack into a file without a name; nil if that fails, as on a full disk.
func keep(dir *os.File, b []byte) *os.File {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "pack")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil
	}
	return f
}

// drop closes the file of an evicted pack, now or when its last user releases it. Callers hold c.mu.
func (c *cache) drop(p *cached) {
	p.gone = true
	if p.users == 0 && p.file != nil {
		p.file.Close()
		p.file = nil
	}
}

func (c *cache) release(p *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.users--; p.users > 0 {
		return
	}
	if p.file != nil {
		p.bytes = nil // from now on it is read from the file
	}
	if p.gone {
		c.drop(p)
	}
}

// content returns the whole pack.
func (c *cache) content(p *cached) ([]byte, error) {
	c.mu.Lock()
	b, f := p.bytes, p.file
	c.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b = make([]byte, p.size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read a kept pack: %w", err)
	}
	return b, nil
}

// reader returns the pack to be sent.
func (c *cache) reader(p *cached) io.ReaderAt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.file != nil {
		return p.file
	}
	return bytesAt(p.bytes)
}

type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// close ends fetches, waits for them, and gives the room back. Afterwards dir is not used any more.
func (c *cache) close() {
	c.mu.Lock()
	c.stop() // none begins afterwards
	c.mu.Unlock()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.order {
		c.drop(c.packs[n])
		delete(c.packs, n)
	}
	c.order, c.size = nil, 0
}
