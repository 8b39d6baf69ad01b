package reader

import (
	"sync"
	"sync/atomic"

	"github.com/musterhq/muster/internal/data/chunk"
)

const (
	bufferStep = 64 << 10 // bytes; sizes of buffers are multiples of it
	bufferMax  = chunk.MaxSize + chunk.Overhead
	freeBytes  = 16 << 20 // most bytes of unused buffers
)

// buffers is memory for chunks. Buffers are reused because the kernel clears and maps each page of new memory, which
// can take more processor time than decryption. It is safe for concurrent use.
type buffers struct {
	mu   sync.Mutex
	used int64 // bytes in free
	free [(bufferMax-1)/bufferStep + 1][][]byte
}

// get returns a buffer of n bytes with any content.
func (p *buffers) get(n int) []byte {
	if n < 1 || n > bufferMax {
		return make([]byte, n)
	}
	class := (n - 1) / bufferStep
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free[class]) - 1; last >= 0 {
		b := p.free[class][last]
		p.free[class] = p.free[class][:last]
		p.used -= int64(cap(b))
		return b[:n]
	}
	return make([]byte, n, (class+1)*bufferStep)
}

// put takes a buffer back, which nothing may use any more.
func (p *buffers) put(b []byte) {
	size := cap(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if size == 0 || size%bufferStep != 0 || size > len(p.free)*bufferStep || p.used+int64(size) > freeBytes {
		return
	}
	class := size/bufferStep - 1
	p.free[class] = append(p.free[class], b)
	p.used += int64(size)
}

// content is the bytes of a chunk and the number of its users: the cache in memory, readers, and the goroutine that
// writes the chunk to the disk. Its buffer is reused after all users have released it.
type content struct {
	b     []byte
	in    []byte   // the buffer in which b lies; nil: none
	pool  *buffers // of in
	users atomic.Int32
}

// newContent returns a chunk's bytes with one user. They may lie in buffer, which comes from the pool.
func newContent(b, buffer []byte, pool *buffers) *content {
	x := &content{b: b, pool: pool}
	if sameArray(b, buffer) {
		x.in = buffer
	}
	x.users.Store(1)
	return x
}

// sameArray reports whether a slice was cut from another one and reaches as far.
func sameArray(part, whole []byte) bool {
	p, w := part[:cap(part)], whole[:cap(whole)]
	return len(p) > 0 && len(w) > 0 && &p[len(p)-1] == &w[len(w)-1]
}

func (x *content) hold(n int) { x.users.Add(int32(n)) }

func (x *content) release() {
	if x.users.Add(-1) == 0 && x.in != nil {
		x.pool.put(x.in)
	}
}
