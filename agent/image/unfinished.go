package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// unfinished remembers what the daemon was told to pull and has not yet under our name: who dies in between would not
// know it again. Its names are random and of this agent's own making, so that nothing else on the host can have them.
type unfinished struct {
	path string
	mu   sync.Mutex
	refs []string
}

func openUnfinished(dir string) (*unfinished, error) {
	u := &unfinished{path: filepath.Join(dir, "unfinished.json")}
	b, err := os.ReadFile(u.path)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &u.refs)
	}
	if err != nil {
		return nil, fmt.Errorf("unfinished pulls: %w", err)
	}
	return u, nil
}

func (u *unfinished) add(ref string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refs = append(u.refs, ref)
	return u.save()
}

func (u *unfinished) remove(ref string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refs = slices.DeleteFunc(u.refs, func(r string) bool { return r == ref })
	return u.save()
}

func (u *unfinished) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.refs)
}

func (u *unfinished) save() error {
	b, err := json.Marshal(u.refs)
	if err != nil {
		return err
	}
	tmp := u.path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("unfinished pulls: %w", err)
	}
	return os.Rename(tmp, u.path)
}

// begin notes what the daemon is to pull, before it is told; ended says that this life is done with it, however it
// went.
func (p *Puller) begin(ref string) (ended func(), err error) {
	p.mu.Lock()
	p.pulling[ref] = true
	p.mu.Unlock()
	ended = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pulling, ref)
	}
	if err := p.unfinished.add(ref); err != nil {
		ended()
		return nil, err
	}
	return ended, nil
}

var kept = regexp.MustCompile(`:[0-9a-f]{64}$`)

// removeUnfinished takes up what an agent that was killed has left behind in the daemon: pulls that had not got our tag
// are let go, images under our tag that were not noted are noted as used now. It looks at names only that this agent
// gives, so the images of others, the host's operator among them, are never touched; an image that has another's name,
// too, stays.
func (p *Puller) removeUnfinished(ctx context.Context) error {
	var errs []error
	for _, ref := range p.unfinished.all() {
		p.mu.Lock()
		busy := p.pulling[ref]
		p.mu.Unlock()
		if busy {
			continue
		}
		if err := p.cfg.Daemon.RemoveImage(ctx, ref); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, p.unfinished.remove(ref))
	}
	tags, err := p.cfg.Daemon.ListImages(ctx, p.cfg.Prefix+"/image")
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, e := range p.store.all() {
		delete(tags, p.tag(e.Digest))
	}
	for tag, bytes := range tags {
		if digest := kept.FindString(tag); digest != "" {
			errs = append(errs, p.store.found("sha256"+digest, bytes, p.cfg.Now()))
			p.cfg.Log.Info("an image was found that had not been noted", "tag", tag, "bytes", bytes)
		}
	}
	return errors.Join(errs...)
}
