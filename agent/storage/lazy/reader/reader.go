// Package reader reads the files of a snapshot of a volume when they are needed: from a cache on the disk, or from the
// store by ranges of packs.
//
// What always holds:
//   - A byte that a reader gets is of a chunk that was verified by its id, also if it comes from the cache.
//   - The cache takes no more of the disk than its limit, whatever the size of the files. What it had is used again by
//     the next process.
//   - A read waits for a store that does not answer for a limited time, and then fails. It fails at once if the store
//     has lost the pack, and the file and the pack are named.
//   - Names are those that package manifest lets pass. Nothing of a snapshot is followed, executed or created here.
package reader

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// Config is what a snapshot needs.
type Config struct {
	Root  *manifest.Ref // nil: the volume is empty
	Packs *manifest.PackSet
	Keys  *chunk.Keys
	// URLs returns signed requests to read packs. An error with Refused is final.
	URLs       func(ctx context.Context, packs []int64) ([]wire.Pack, error)
	HTTP       *http.Client // for the store
	Cache      string       // a folder for this snapshot alone
	CacheBytes int64        // what it may hold
	// Patience is how long a read waits for a store that does not answer; 0 is DefaultPatience.
	Patience time.Duration
	Log      *slog.Logger
}

// DefaultPatience is how long a read waits for a store that does not answer.
const DefaultPatience = 2 * time.Minute

// Refused returns the error of URLs for requests that no retry helps.
func Refused(why string) error { return fmt.Errorf("%w: %s", errRefused, why) }

// maxFlaws is of how many packs is noted what the store has lost or changed.
const maxFlaws = 64

// dirBytes is how many bytes of memory folders may take that are kept decoded.
const dirBytes = 64 << 20

// Snapshot is a snapshot that is read on demand. It is safe for concurrent use.
type Snapshot struct {
	cfg      Config
	chunks   *chunks
	manifest manifest.Reader

	mu      sync.Mutex
	waiting string           // why reads wait
	flaws   map[int64]string // what of packs the store has lost or changed
	broken  string           // the last read that failed for another reason
	dirs    map[chunk.ID]*list.Element
	order   *list.List // of keptDir; the front was used last
	used    int64
}

type keptDir struct {
	id      chunk.ID
	size    int64 // of its encoding
	memory  int64
	entries []manifest.Entry
}

// Open returns the snapshot. It reads nothing from the store.
func Open(cfg Config) (*Snapshot, error) {
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Packs == nil {
		cfg.Packs = manifest.NewPackSet()
	}
	d, err := openDisk(cfg.Cache, cfg.Keys, cfg.CacheBytes)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{cfg: cfg, flaws: map[int64]string{}, dirs: map[chunk.ID]*list.Element{}, order: list.New()}
	s.chunks = newChunks(&packs{cfg: cfg, has: cfg.Packs, waits: s.waits, whole: s.whole, urls: map[int64]wire.Pack{}},
		cfg.Keys, d)
	s.manifest = manifest.Reader{Chunk: s.manifestChunk}
	return s, nil
}

func (s *Snapshot) manifestChunk(ctx context.Context, r manifest.Ref) ([]byte, error) {
	return s.chunks.manifest(ctx, r)
}

// Root returns the root of the tree: an empty folder if the volume is empty.
func (s *Snapshot) Root(ctx context.Context) (manifest.Entry, error) {
	if s.cfg.Root == nil {
		return manifest.Entry{Kind: manifest.Dir, Mode: 0o755}, nil
	}
	root, err := s.manifest.Root(ctx, *s.cfg.Root)
	if err != nil {
		s.failed("/", err)
	}
	return root.Dir, err
}

// Entries returns the entries of a folder, sorted by name, until the first error. They must not be changed. path is for
// people.
func (s *Snapshot) Entries(ctx context.Context, e manifest.Entry, path string) iter.Seq2[manifest.Entry, error] {
	return func(yield func(manifest.Entry, error) bool) {
		if len(e.Body.Refs) == 0 {
			return
		}
		if kept, ok := s.recall(e); ok {
			for _, k := range kept {
				if !yield(k, nil) {
					return
				}
			}
			return
		}
		// A folder that is large, or that the first chunk does not name, is read each time.
		keep, size := len(e.Body.Refs) == 1 && e.Body.Lists == 0, int64(0)
		var entries []manifest.Entry
		for k, err := range s.manifest.Entries(ctx, e) {
			if err != nil {
				s.failed(path, err)
				yield(manifest.Entry{}, err)
				return
			}
			if size += memoryOf(k); size > dirBytes/4 {
				keep, entries = false, nil
			}
			if keep {
				entries = append(entries, k)
			}
			if !yield(k, nil) {
				return
			}
		}
		if keep {
			s.keep(keptDir{e.Body.Refs[0].ID, e.Size, size, entries})
		}
	}
}

// Entry returns the entry of a folder that has a name; ok is false if there is none. path is for people.
func (s *Snapshot) Entry(ctx context.Context, e manifest.Entry, name, path string) (k manifest.Entry, ok bool,
	err error) {
	if kept, ok := s.recall(e); ok {
		i, found := slices.BinarySearchFunc(kept, name, func(k manifest.Entry, name string) int {
			return strings.Compare(k.Name, name)
		})
		if !found {
			return k, false, nil
		}
		return kept[i], true, nil
	}
	for x, err := range s.Entries(ctx, e, path) {
		if err != nil {
			return k, false, err
		}
		if x.Name == name { // the rest is read, so that the folder can be kept
			k, ok = x, true
		}
	}
	return k, ok, nil
}

// memoryOf is about what an entry takes in memory.
func memoryOf(e manifest.Entry) int64 {
	n := 192 + len(e.Name) + len(e.Target) + 16*len(e.Holes) + 56*len(e.Body.Refs)
	for _, x := range e.XAttrs {
		n += 32 + len(x.Name) + len(x.Value)
	}
	return int64(n)
}

// recall returns the entries of a folder that is kept.
func (s *Snapshot) recall(e manifest.Entry) ([]manifest.Entry, bool) {
	if len(e.Body.Refs) == 0 {
		return nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.dirs[e.Body.Refs[0].ID]
	if k == nil || k.Value.(keptDir).size != e.Size {
		return nil, false
	}
	s.order.MoveToFront(k)
	return k.Value.(keptDir).entries, true
}

// keep keeps a folder, and lets go of those that were not used for the longest time.
func (s *Snapshot) keep(d keptDir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirs[d.id] == nil {
		s.dirs[d.id] = s.order.PushFront(d)
		s.used += d.memory
	}
	for s.used > dirBytes && s.order.Len() > 1 {
		k := s.order.Remove(s.order.Back()).(keptDir)
		delete(s.dirs, k.id)
		s.used -= k.memory
	}
}

// File returns a file. path is for people.
func (s *Snapshot) File(e manifest.Entry, path string) *File { return newFile(s, e, path) }

// Trouble returns why reads wait or fail, for people; "" = they do not.
func (s *Snapshot) Trouble() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(s.flaws)) {
		return s.flaws[n]
	}
	return cmp.Or(s.waiting, s.broken)
}

// whole notes that the store has sent what was stored in a pack.
func (s *Snapshot) whole(pack int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flaws, pack)
}

func (s *Snapshot) waits(problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting = ""; problem != "" {
		s.waiting = problem + ": reads wait"
		return
	}
	s.broken = "" // the store answers
}

// failed notes a read that failed.
func (s *Snapshot) failed(path string, err error) {
	if errors.Is(err, context.Canceled) {
		return // the reader was interrupted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var flaw *flawError
	switch {
	case errors.As(err, &flaw):
		if len(s.flaws) < maxFlaws {
			s.flaws[flaw.pack] = fmt.Sprintf("%s: %s cannot be read", flaw, path)
		}
	case errors.Is(err, chunk.ErrCorrupt), errors.Is(err, manifest.ErrCorrupt):
		// No pack has this number, so that it is never taken back: the snapshot does not change.
		s.flaws[0] = fmt.Sprintf("%s cannot be read: what was stored of it is malformed", path)
	default:
		s.waiting = ""
		s.broken = fmt.Sprintf("%s: a read of %s has failed", err, path)
	}
}
