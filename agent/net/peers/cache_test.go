package peers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
)

// The cache gives room back in time, never under a reader, and gets again what it gave up.
func TestCache_Limit(t *testing.T) {
	t.Parallel()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	var mu sync.Mutex
	gets := 0
	c := newCache(dir, 1000, func(_ context.Context, n int64) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		gets++
		return bytes.Repeat([]byte{byte(n)}, 300), nil
	})
	first, err := c.use(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.release(first)
	held, err := c.use(t.Context(), 1) // from the file
	if err != nil {
		t.Fatal(err)
	}
	from := c.reader(held)
	for n := int64(2); n < 20; n++ {
		p, err := c.use(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		c.release(p)
		if c.size > 1000 {
			t.Fatalf("%d bytes are kept", c.size)
		}
	}
	if b := make([]byte, 300); true {
		if _, err := from.ReadAt(b, 0); err != nil || b[299] != 1 {
			t.Errorf("a pack in use was given up: %v", err)
		}
	}
	c.release(held)
	if p, err := c.use(t.Context(), 19); err != nil || gets != 19 {
		t.Errorf("the last one was got again: %d, %v", gets, err)
	} else if b, err := c.content(p); err != nil || b[0] != 19 || len(b) != 300 {
		t.Errorf("its content: %v", err)
	}
	if _, err := c.use(t.Context(), 1); err != nil || gets != 20 {
		t.Errorf("one that was given up: %d, %v", gets, err)
	}
	c.close()
	if _, err := c.use(t.Context(), 19); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
	if names, err := os.ReadDir(dir.Name()); err != nil || len(names) > 0 {
		t.Errorf("files are left: %v, %v", names, err)
	}
}
