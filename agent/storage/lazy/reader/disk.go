package reader

import (
	"container/list"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
)

// disk keeps chunks in files, one for each, and removes those that were not used for the longest time when they
// exceed a limit. A chunk that is read from it is verified like one from the store.
type disk struct {
	dir   string
	keys  *chunk.Keys
	limit int64

	mu    sync.Mutex
	used  int64
	byID  map[chunk.ID]*list.Element
	order *list.List // of stored; the front was used last
}

type stored struct {
	id   chunk.ID
	size int64 // on the disk
}

// block is what sizes on the disk are multiples of; a file's own records take another one.
const block = 4 << 10

func onDisk(n int64) int64 { return (n+block-1)/block*block + block }

// openDisk finds what a process before has left in the folder.
func openDisk(dir string, keys *chunk.Keys, limit int64) (*disk, error) {
	d := &disk{dir: filepath.Join(dir, "chunks"), keys: keys, limit: limit, byID: map[chunk.ID]*list.Element{},
		order: list.New()}
	type found struct {
		stored
		at time.Time
	}
	var all []found
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		raw, err := hex.DecodeString(e.Name())
		if err != nil || len(raw) != len(chunk.ID{}) {
			return os.Remove(path) // one that a kill has cut off
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		all = append(all, found{stored{chunk.ID(raw), onDisk(info.Size())}, info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the cache: %w", err)
	}
	slices.SortFunc(all, func(a, b found) int { return a.at.Compare(b.at) })
	for _, f := range all {
		d.byID[f.id] = d.order.PushFront(f.stored)
		d.used += f.size
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d, d.shrink(0)
}

func (d *disk) path(id chunk.ID) string {
	name := id.String()
	return filepath.Join(d.dir, name[:2], name)
}

func (d *disk) has(id chunk.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id] != nil
}

// get returns a chunk; nil: it is not here, or not any more.
func (d *disk) get(id chunk.ID) []byte {
	d.mu.Lock()
	e := d.byID[id]
	if e != nil {
		d.order.MoveToFront(e)
	}
	d.mu.Unlock()
	if e == nil {
		return nil
	}
	b, err := os.ReadFile(d.path(id))
	if err == nil && d.keys.ID(b) == id {
		return b
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID[id] == e {
		_ = d.remove(e)
	}
	return nil
}

// put keeps a chunk. What does not fit, or cannot be written, is read from the store again.
func (d *disk) put(id chunk.ID, b []byte) error {
	size := onDisk(int64(len(b)))
	d.mu.Lock()
	if d.byID[id] != nil || size > d.limit {
		d.mu.Unlock()
		return nil
	}
	err := d.shrink(size)
	d.used += size // others do not take the room meanwhile
	d.mu.Unlock()
	if err == nil {
		err = d.write(id, b)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || d.byID[id] != nil {
		d.used -= size
		return err
	}
	d.byID[id] = d.order.PushFront(stored{id, size})
	return nil
}

func (d *disk) write(id chunk.ID, b []byte) error {
	path := d.path(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// shrink makes room. Callers hold d.mu.
func (d *disk) shrink(room int64) error {
	for d.used+room > d.limit && d.order.Len() > 0 {
		if err := d.remove(d.order.Back()); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a chunk. Callers hold d.mu.
func (d *disk) remove(e *list.Element) error {
	s := e.Value.(stored)
	if err := os.Remove(d.path(s.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make room in the cache: %w", err)
	}
	d.order.Remove(e)
	delete(d.byID, s.id)
	d.used -= s.size
	return nil
}
