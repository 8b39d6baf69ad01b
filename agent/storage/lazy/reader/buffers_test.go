package reader

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// A buffer is used again after the last user of its chunk, and not before.
func TestABufferIsUsedAgainAfterItsLastUser(t *testing.T) {
	t.Parallel()
	var p buffers
	b := p.get(100_000)
	x := newContent(b[13:50_000], b, &p)
	x.hold(1)
	x.release()
	if again := p.get(100_000); &again[0] == &b[0] {
		t.Fatal("a buffer in use was given away")
	}
	x.release()
	if again := p.get(99_000); &again[0] != &b[0] {
		t.Error("a free buffer of this size was not used")
	}
	decompressed := newContent(make([]byte, 10), p.get(100_000), &p)
	if decompressed.in != nil {
		t.Error("a chunk outside of the buffer keeps it")
	}
	for range 1000 {
		p.put(make([]byte, chunk.MaxSize))
	}
	if p.used > freeBytes {
		t.Errorf("%d bytes wait to be used again", p.used)
	}
}

// Readers that get chunks while others come and are dropped see the bytes of their own chunk.
func TestReadersKeepTheirBytes(t *testing.T) {
	t.Parallel()
	c := newChunks(nil, nil, nil)
	const many = 2 * inMemory / (256 << 10)
	refs := make([]manifest.Ref, many)
	for i := range refs {
		refs[i] = manifest.Ref{ID: chunk.ID{byte(i), byte(i >> 8), 1}, Size: 256 << 10}
	}
	var fetchers, readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			want := make([]byte, 256<<10)
			for range 3000 {
				i := rand.IntN(many)
				c.mu.Lock()
				x := c.recall(refs[i].ID)
				c.mu.Unlock()
				if x == nil {
					continue
				}
				for k := range want {
					want[k] = byte(i)
				}
				if !bytes.Equal(x.b, want) {
					t.Errorf("chunk %d has other bytes", i)
				}
				x.release()
			}
		})
	}
	for part := range 2 {
		fetchers.Go(func() {
			for i := part; i < many; i += 2 {
				b := c.pool.get(256 << 10)
				for k := range b {
					b[k] = byte(i)
				}
				x := newContent(b, b, &c.pool)
				c.mu.Lock()
				c.flights[refs[i].ID] = &flight{done: make(chan struct{})}
				c.mu.Unlock()
				c.land(refs[i], x, nil)
				x.release()
			}
		})
	}
	fetchers.Wait()
	readers.Wait()
	if c.used > inMemory {
		t.Errorf("%d bytes are in memory", c.used)
	}
}
