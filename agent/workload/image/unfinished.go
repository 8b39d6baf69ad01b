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

// unfinished records pulls that the daemon was asked for and that do not have our tag yet, so that an agent that is
// killed in between finds them again. The names are random and specific to this agent, so nothing else on the host can
// have them.
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

// begin records a pull before the daemon is asked for it; ended records that this process is done with it, whatever the
// result.
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

// removeUnfinished cleans up what a killed agent has left in the daemon: it removes pulls that did not get our tag, and
// records images under our tag that were not recorded as used now. It only considers names that this agent gives, so it
// never touches other images, including the host operator's; an image that also has another name stays.
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
	recorded := p.store.all()
	for _, tag := range tags {
		hex := kept.FindString(tag)
		if hex == "" || slices.ContainsFunc(recorded, func(e stored) bool { return p.tag(e.Digest) == tag }) {
			continue
		}
		id, bytes, err := p.cfg.Daemon.FindImage(ctx, tag)
		if err != nil || id == "" {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, p.store.found("sha256"+hex, bytes, p.cfg.Now()))
		p.cfg.Log.Info("an image was found that had not been noted", "tag", tag, "bytes", bytes)
	}
	return errors.Join(errs...)
}
