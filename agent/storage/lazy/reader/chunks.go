package reader

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

const (
	inMemory    = 64 << 20 // bytes of chunks that were read last: more than is read ahead of one reader
	maxRange    = 4 << 20  // bytes of one request
	demandSlots = 8        // requests at once that a reader waits for
	aheadSlots  = 8        // requests at once for what may be needed
	// Chunks of the manifest are small and lie together: their packs are read by windows, of which the last are kept.
	window  = 1 << 20
	windows = 16
)

// chunks are the chunks of a snapshot: in memory, on the disk, or in the store. A chunk is fetched once, however many
// readers wait for it.
type chunks struct {
	packs *packs
	keys  *chunk.Keys
	disk  *disk
	slots [2]chan struct{} // of requests; see demand and ahead
	pool  buffers

	mu      sync.Mutex
	byID    map[chunk.ID]*list.Element
	order   *list.List // of held; the front was used last
	used    int64
	flights map[chunk.ID]*flight

	reading  singleflight.Group // of windows
	windowMu sync.Mutex
	windows  []packWindow
}

type held struct {
	id chunk.ID
	x  *content
}

// A flight is a chunk that is being fetched.
type flight struct {
	done    chan struct{}
	waiters int      // readers, each of which will release x
	x       *content // once it is done; nil with err
	err     error
}

type packWindow struct {
	pack, from int64
	b          []byte
}

// Who waits for a request.
const (
	demand = 0
	ahead  = 1
)

func newChunks(p *packs, keys *chunk.Keys, d *disk) *chunks {
	c := &chunks{packs: p, keys: keys, disk: d, byID: map[chunk.ID]*list.Element{}, order: list.New(),
		flights: map[chunk.ID]*flight{}}
	c.slots[demand], c.slots[ahead] = make(chan struct{}, demandSlots), make(chan struct{}, aheadSlots)
	return c
}

// recall returns a chunk that is in memory, for one more user; nil: it is not. Callers hold c.mu.
func (c *chunks) recall(id chunk.ID) *content {
	e := c.byID[id]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	x := e.Value.(held).x
	x.hold(1)
	return x
}

// keep puts a chunk into memory. Callers hold c.mu.
func (c *chunks) keep(id chunk.ID, x *content) {
	if c.byID[id] != nil {
		return
	}
	x.hold(1)
	c.byID[id] = c.order.PushFront(held{id, x})
	c.used += int64(cap(x.b))
	for c.used > inMemory && c.order.Len() > 1 {
		e := c.order.Back()
		h := c.order.Remove(e).(held)
		delete(c.byID, h.id)
		c.used -= int64(cap(h.x.b))
		h.x.release()
	}
}

// get returns a chunk once it is here. The caller releases it.
func (c *chunks) get(ctx context.Context, r manifest.Ref) (*content, error) {
	c.mu.Lock()
	if x := c.recall(r.ID); x != nil {
		c.mu.Unlock()
		return x, nil
	}
	f := c.flights[r.ID]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		c.flights[r.ID] = f
		go c.fetch([]manifest.Ref{r}, demand)
	}
	f.waiters++
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.x, f.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waiters--
	select {
	case <-f.done:
		if f.x != nil {
			f.x.release()
		}
	default:
	}
	return nil, ctx.Err()
}

// start begins to fetch chunks that lie one after the other in a pack. It does nothing for those that are here or on
// their way. Ahead of readers, it reports false if too many requests are under way.
func (c *chunks) start(refs []manifest.Ref, who int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var missing []manifest.Ref
	for _, r := range refs {
		if c.byID[r.ID] != nil || c.flights[r.ID] != nil || who == ahead && c.disk.has(r.ID) {
			continue
		}
		missing = append(missing, r)
	}
	if len(missing) == 0 {
		return true
	}
	if who == ahead {
		select {
		case c.slots[ahead] <- struct{}{}:
		default:
			return false
		}
	}
	for _, r := range missing {
		c.flights[r.ID] = &flight{done: make(chan struct{})}
	}
	go c.fetch(missing, who)
	return true
}

// fetch ends the flights of refs.
func (c *chunks) fetch(refs []manifest.Ref, who int) {
	begun := time.Now()
	var far []manifest.Ref
	for _, r := range refs {
		if b := c.disk.get(r.ID); b != nil {
			x := newContent(b, nil, nil)
			c.land(r, x, nil)
			x.release()
			continue
		}
		far = append(far, r)
	}
	if who == demand && len(far) > 0 {
		c.slots[demand] <- struct{}{}
	}
	for _, g := range groups(far) {
		c.fetchGroup(g, begun)
	}
	if who == ahead || len(far) > 0 {
		<-c.slots[who]
	}
}

// fetchGroup fetches chunks that lie one after the other in a pack, with one request.
func (c *chunks) fetchGroup(refs []manifest.Ref, begun time.Time) {
	parts := make([]int, len(refs))
	for i, r := range refs {
		parts[i] = int(r.Length)
	}
	landed := 0
	err := c.packs.read(context.Background(), refs[0].Pack, int64(refs[0].Offset), parts, begun, c.pool.get,
		func(i int, blob []byte) error {
			b, err := c.open(refs[i], blob, c.keys.OpenInPlace)
			if err != nil {
				c.pool.put(blob)
				return err
			}
			x := newContent(b, blob, &c.pool)
			defer x.release()
			c.land(refs[i], x, nil)
			landed++
			if err := c.disk.put(refs[i].ID, b); err != nil {
				c.packs.cfg.Log.Warn("a chunk is not kept in the cache", "err", err)
			}
			return nil
		})
	for _, r := range refs[landed:] {
		c.land(r, nil, err)
	}
}

func (c *chunks) open(r manifest.Ref, blob []byte, open func(chunk.ID, []byte) ([]byte, error)) ([]byte, error) {
	b, err := open(r.ID, blob)
	if err == nil && len(b) != int(r.Size) {
		err = chunk.ErrCorrupt
	}
	return b, err
}

// land ends a flight. The caller is a user of x, which is nil with an error.
func (c *chunks) land(r manifest.Ref, x *content, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[r.ID]
	delete(c.flights, r.ID) // after an error, the next reader tries again
	if err == nil && len(x.b) != int(r.Size) {
		x, err = nil, chunk.ErrCorrupt
	}
	if err == nil {
		x.hold(f.waiters)
		c.keep(r.ID, x)
	}
	f.x, f.err = x, err
	close(f.done)
}

// groups divides chunks into those that one request reads: adjacent in a pack, and not more than maxRange.
func groups(refs []manifest.Ref) (out [][]manifest.Ref) {
	begin, length := 0, 0
	for i, r := range refs {
		if i > begin {
			p := refs[i-1]
			if r.Pack != p.Pack || r.Offset != p.Offset+p.Length || length+int(r.Length) > maxRange {
				out = append(out, refs[begin:i])
				begin, length = i, 0
			}
		}
		length += int(r.Length)
	}
	if begin < len(refs) {
		out = append(out, refs[begin:])
	}
	return out
}

// manifest returns a chunk of the manifest.
func (c *chunks) manifest(ctx context.Context, r manifest.Ref) ([]byte, error) {
	c.mu.Lock()
	x := c.recall(r.ID)
	c.mu.Unlock()
	if x != nil {
		defer x.release()
		return slices.Clone(x.b), nil // a file's chunk may have the same bytes, in a buffer
	}
	if b := c.disk.get(r.ID); b != nil {
		return b, nil
	}
	b, err := c.openInWindow(ctx, r)
	for try := 1; try < lostTries && errors.Is(err, chunk.ErrCorrupt); try++ { // see packs.retry
		c.dropWindows(r.Pack)
		b, err = c.openInWindow(ctx, r)
	}
	if errors.Is(err, chunk.ErrCorrupt) {
		err = &flawError{pack: r.Pack, changed: true}
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	x = newContent(b, nil, nil)
	c.keep(r.ID, x)
	c.mu.Unlock()
	x.release()
	if err := c.disk.put(r.ID, b); err != nil {
		c.packs.cfg.Log.Warn("a chunk is not kept in the cache", "err", err)
	}
	return b, nil
}

func (c *chunks) openInWindow(ctx context.Context, r manifest.Ref) ([]byte, error) {
	blob, err := c.inWindow(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.open(r, blob, c.keys.Open) // others read the same window
}

// dropWindows forgets what was read of a pack.
func (c *chunks) dropWindows(pack int64) {
	c.windowMu.Lock()
	defer c.windowMu.Unlock()
	c.windows = slices.DeleteFunc(c.windows, func(w packWindow) bool { return w.pack == pack })
}

// inWindow returns the blob of a chunk of the manifest.
func (c *chunks) inWindow(ctx context.Context, r manifest.Ref) ([]byte, error) {
	from, to := int64(r.Offset), int64(r.Offset)+int64(r.Length)
	cut := func(w packWindow) []byte { return w.b[from-w.from : to-w.from] }
	c.windowMu.Lock()
	for _, w := range c.windows {
		if w.pack == r.Pack && w.from <= from && to <= w.from+int64(len(w.b)) {
			c.windowMu.Unlock()
			return cut(w), nil
		}
	}
	c.windowMu.Unlock()
	first, last := from/window, (to-1)/window
	read := c.reading.DoChan(fmt.Sprint(r.Pack, first, last), func() (any, error) {
		w, err := c.readWindow(r.Pack, first*window, (last+1)*window)
		if err == nil {
			c.windowMu.Lock()
			c.windows = append([]packWindow{w}, c.windows[:min(len(c.windows), windows-1)]...)
			c.windowMu.Unlock()
		}
		return w, err
	})
	select {
	case x := <-read:
		if w := x.Val.(packWindow); x.Err == nil && to <= w.from+int64(len(w.b)) {
			return cut(w), nil
		} else if x.Err == nil {
			return nil, chunk.ErrCorrupt
		}
		return nil, x.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readWindow reads a part of a pack, which may reach beyond its end.
func (c *chunks) readWindow(pack, from, to int64) (w packWindow, err error) {
	w = packWindow{pack: pack, from: from}
	err = c.packs.readTo(pack, from, to, func(b []byte) { w.b = b })
	return w, err
}
