package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// store records which images were pulled by this package and when they were last used.
type store struct {
	path string
	mu   sync.Mutex
	list []stored
}

type stored struct {
	Digest   string    `json:"digest"`
	Bytes    int64     `json:"bytes"`
	LastUsed time.Time `json:"last_used"`
	Ref      string    `json:"ref,omitempty"` // complete name, if it was pulled without credentials
	Pin      string    `json:"pin,omitempty"` // digest that this name refers to
}

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s := &store{path: filepath.Join(dir, "images.json")}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s.list)
	}
	if err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	return s, nil
}

// used records a use. ref is the name by which the image was pulled without credentials, or "".
func (s *store) used(img Image, ref string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := stored{Digest: img.Digest, Bytes: img.Bytes, LastUsed: now, Ref: ref, Pin: img.Pin}
	s.list = slices.DeleteFunc(s.list, func(old stored) bool {
		if old.Digest == img.Digest && ref == "" {
			e.Ref, e.Pin = old.Ref, old.Pin
		}
		return old.Digest == img.Digest
	})
	for i := range s.list {
		if ref != "" && s.list[i].Ref == ref {
			s.list[i].Ref = "" // the name refers to another image now
		}
	}
	s.list = append(s.list, e) // least recently used first
	return s.save()
}

// found records an image that is on the host, unless it is already known.
func (s *store) found(digest string, bytes int64, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.list, func(e stored) bool { return e.Digest == digest }) {
		return nil
	}
	s.list = append(s.list, stored{Digest: digest, Bytes: bytes, LastUsed: now})
	return s.save()
}

func (s *store) forget(digest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(e stored) bool { return e.Digest == digest })
	return s.save()
}

func (s *store) all() []stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Free returns the free bytes of the disk for images.
func (p *Puller) Free() (int64, error) { return p.cfg.Free() }

// Cached lists the images that were pulled without credentials, most recently used first.
func (p *Puller) Cached() []agentapi.CachedImage {
	var out []agentapi.CachedImage
	for _, e := range slices.Backward(p.store.all()) {
		if e.Ref != "" && len(out) < agentapi.MaxImages {
			out = append(out, agentapi.CachedImage{Ref: e.Ref, Digest: e.Pin, Bytes: e.Bytes})
		}
	}
	return out
}

func (s *store) save() error {
	b, err := json.MarshalIndent(s.list, "", "  ")
	if err != nil {
		return err
	}
	tmp := s.path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("image store: %w", err)
	}
	return os.Rename(tmp, s.path)
}

// GC removes images that were unused for longer than keep and, least recently used first, as many more as are needed to
// have minFree bytes free on the disk. It keeps images whose digest is in use, and touches only images that this
// package pulled.
func (p *Puller) GC(ctx context.Context, inUse []string, keep time.Duration, minFree int64) (removed int, err error) {
	if err := p.removeUnfinished(ctx); err != nil {
		p.cfg.Log.Warn("images that were left behind are not settled", "err", err) // the next GC removes it
	}
	for _, e := range p.store.all() {
		if slices.Contains(inUse, e.Digest) {
			continue
		}
		free, err := p.cfg.Free()
		if err != nil {
			return removed, err
		}
		if p.cfg.Now().Sub(e.LastUsed) <= keep && free >= minFree {
			continue
		}
		if err := p.cfg.Daemon.RemoveImage(ctx, p.tag(e.Digest)); err != nil {
			return removed, err
		}
		if err := p.store.forget(e.Digest); err != nil {
			return removed, err
		}
		p.cfg.Log.Info("image removed", "digest", e.Digest, "bytes", e.Bytes, "last_used", e.LastUsed)
		removed++
	}
	return removed, nil
}
