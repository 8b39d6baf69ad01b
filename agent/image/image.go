// Package image brings renters' images onto a host.
//
// What always holds: the Docker daemon pulls from this package's loopback registry only, never from the network itself,
// because a registry can send whoever pulls from it to any address; here every connection goes to a public address or
// is not made. What reaches the daemon has the digest it was asked for, but for the volumes that a configuration
// declares, is made for this machine, and neither packed nor unpacked is greater than the node's disk. A pull that
// leaves the host's disk without room is given up. Credentials stay in this process and in the requests to the registry
// they are for. Images that were not pulled here are never removed.
package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Daemon is what a Puller needs of Docker.
type Daemon interface {
	// PullImage pulls ref and calls says with each layer's short digest and what the daemon does with it.
	PullImage(ctx context.Context, ref string, says func(layer, status string)) error
	// KeepImage tags ref as tag, lets go of ref, and returns the image's id and unpacked size in bytes.
	KeepImage(ctx context.Context, ref, tag string) (id string, size int64, err error)
	// FindImage returns the id and size of a tag's image, or "" when there is none.
	FindImage(ctx context.Context, tag string) (id string, size int64, err error)
	// ListImages returns the tags of a repository that the daemon has, with their images' unpacked sizes in bytes.
	ListImages(ctx context.Context, repository string) (map[string]int64, error)
	// RemoveImage lets go of a tag and of what only it held. No such tag is no error.
	RemoveImage(ctx context.Context, tag string) error
}

// Config of a Puller.
type Config struct {
	Daemon Daemon
	Dir    string                // where it keeps what it has pulled
	Prefix string                // of its tags, telling this agent's from others': "muster-1a2b3c4d"
	Allow  []string              // host:port of registries that may be at a private address and speak plain HTTP
	Free   func() (int64, error) // bytes free where images go
	Driver func() Driver         // the host's NVIDIA driver; nil: none to compare images with
	Now    func() time.Time
	Log    *slog.Logger
}

// Request is an image a lease wants.
type Request struct {
	Image    string // as the renter wrote it
	Digest   string // pins it; "" = what the name means now
	Auth     *agentapi.RegistryAuth
	MaxBytes int64 // packed, and unpacked
	// MaxFetch is how many bytes may come over the line for it; 0 = as many as it takes. One that is here already needs
	// none.
	MaxFetch int64
}

// Image is a pulled image.
type Image struct {
	ID     string // the daemon's
	Digest string // of the manifest for this machine: sha256:…
	Pin    string // what the name meant: this manifest, or the list for several machines that it is from
	Bytes  int64  // unpacked
}

// Puller pulls images. It is safe for use by several goroutines.
type Puller struct {
	cfg   Config
	guard *guard
	proxy *proxy
	store *store

	unfinished *unfinished

	mu      sync.Mutex
	flights map[string]*flight // by digest
	pulling map[string]bool    // what the daemon was told to pull, in this life
}

// New opens the loopback registry; Serve answers it.
func New(cfg Config) (*Puller, error) {
	st, err := openStore(cfg.Dir)
	if err != nil {
		return nil, err
	}
	un, err := openUnfinished(cfg.Dir)
	if err != nil {
		return nil, err
	}
	proxy, err := newProxy()
	if err != nil {
		return nil, err
	}
	return &Puller{
		cfg:        cfg,
		guard:      newGuard(cfg.Allow),
		proxy:      proxy,
		store:      st,
		unfinished: un,
		flights:    map[string]*flight{},
		pulling:    map[string]bool{},
	}, nil
}

// Serve answers the daemon until ctx ends.
func (p *Puller) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { p.proxy.server.Close() })
	defer stop()
	return p.proxy.serve()
}

// reportEvery is how often a pull tells its progress.
const reportEvery = 300 * time.Millisecond

// Pull brings the image and returns once the daemon has it. report is called from this goroutine, now and then. An
// *Error is final; after any other error Pull may be tried again and goes on where it was.
func (p *Puller) Pull(ctx context.Context, r Request, report func(agentapi.Progress)) (Image, error) {
	report(agentapi.Progress{Step: "manifest"})
	f, err := p.lookWithin(ctx, lookLimit, r)
	if err != nil {
		return Image{}, classify(err)
	}
	if id, size, err := p.cfg.Daemon.FindImage(ctx, p.tag(f.digest.String())); err != nil {
		return Image{}, err
	} else if id != "" && !f.is(id) {
		if err := p.cfg.Daemon.RemoveImage(ctx, p.tag(f.digest.String())); err != nil {
			return Image{}, err
		}
	} else if id != "" {
		img := Image{ID: id, Digest: f.digest.String(), Pin: f.pin, Bytes: size}
		if size > r.MaxBytes {
			return Image{}, tooBig("it unpacks to %s; the node's disk has %s", gb(size), gb(r.MaxBytes))
		}
		report(allCached(f))
		return img, p.store.used(img, f.public(r), p.cfg.Now())
	}
	if r.MaxFetch > 0 && f.total > r.MaxFetch {
		return Image{}, tooBig("it has %s compressed; %s may be fetched", gb(f.total), gb(r.MaxFetch))
	}
	if free, err := p.cfg.Free(); err == nil && free < max(2*f.total, leastFree) {
		return Image{}, &Error{
			Reason: agentapi.ReasonNoDisk,
			Detail: fmt.Sprintf("the image needs about %s, the host has %s free", gb(2*f.total), gb(free)),
		}
	}
	fl := p.join(f, r.MaxBytes)
	defer p.leave(fl)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-fl.done:
			if fl.err != nil {
				return Image{}, classify(fl.err)
			}
			report(fl.progress())
			img := fl.image
			img.Pin = f.pin // of the name this lease asked for, which may not be the one that began the download
			return img, p.store.used(img, f.public(r), p.cfg.Now())
		case <-ctx.Done():
			return Image{}, ctx.Err()
		case <-tick.C:
			report(fl.progress())
		}
	}
}

func allCached(f *found) agentapi.Progress {
	p := agentapi.Progress{Step: "layers", Done: f.total, Total: f.total, Layers: f.progress()}
	for i := range p.Layers {
		p.Layers[i].Done, p.Layers[i].Cached = p.Layers[i].Total, true
	}
	return p
}

// join finds the download of an image that is under way, or begins it. One with a tighter limit is not shared: what
// is too big for its lease may fit this one's.
func (p *Puller) join(f *found, maxBytes int64) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprintf("%s/%d", f.digest, maxBytes)
	if fl := p.flights[key]; fl != nil {
		fl.waiting++
		return fl
	}
	ctx, cancel := context.WithCancel(context.Background())
	fl := &flight{
		found:    f,
		unpacked: newBudget(maxBytes),
		pace:     &pace{now: p.cfg.Now},
		cancel:   cancel,
		done:     make(chan struct{}),
		waiting:  1,
		layers:   f.progress(),
	}
	p.flights[key] = fl
	go func() {
		defer close(fl.done)
		fl.image, fl.err = p.download(ctx, fl)
		cancel()
		p.mu.Lock()
		delete(p.flights, key)
		p.mu.Unlock()
	}()
	return fl
}

func (p *Puller) leave(fl *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fl.waiting--; fl.waiting == 0 {
		fl.cancel()
	}
}

func (p *Puller) download(ctx context.Context, fl *flight) (Image, error) {
	ref, done := p.proxy.open(fl)
	defer done()
	ended, err := p.begin(ref)
	if err != nil {
		return Image{}, err
	}
	defer ended()
	watched := p.watch(ctx, fl)
	err = p.cfg.Daemon.PullImage(ctx, ref, fl.applyProgress)
	watched()
	if err != nil {
		return Image{}, fl.fault(err)
	}
	img := Image{Digest: fl.found.digest.String()}
	// From here on the image is on the disk: finish, whoever still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	img.ID, img.Bytes, err = p.cfg.Daemon.KeepImage(ctx, ref, p.tag(img.Digest))
	if err != nil {
		return img, err
	}
	if most := fl.unpacked.of.Load(); img.Bytes > most { // what was measured is not what the daemon made of it
		err := errors.Join(p.cfg.Daemon.RemoveImage(ctx, p.tag(img.Digest)), p.unfinished.remove(ref))
		if err != nil {
			return Image{}, err
		}
		return Image{}, tooBig("it unpacks to %s; the node's disk has %s", gb(img.Bytes), gb(most))
	}
	return img, errors.Join(p.store.used(img, "", p.cfg.Now()), p.unfinished.remove(ref))
}

const (
	watchEvery = time.Second
	// leastFree is how many bytes of the disk for images a pull leaves free, whatever it was told of the image's size: the
	// daemon and what runs on the host live on the same disk.
	leastFree = 2e9
)

// watch gives a download up when the disk runs full during it, whoever fills it, or its registry is too slow. The
// daemon removes what it has of it. stop ends the watch.
func (p *Puller) watch(ctx context.Context, fl *flight) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			if free, err := p.cfg.Free(); err == nil && free < leastFree && ctx.Err() == nil {
				fl.note(&Error{
					Reason: agentapi.ReasonNoDisk,
					Detail: fmt.Sprintf("the host's disk ran full during the pull: %s are free", gb(free)),
				})
				return
			}
			if err := fl.pace.slow(); err != nil && ctx.Err() == nil {
				fl.note(err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// tag holds an image on the host.
func (p *Puller) tag(digest string) string { return p.cfg.Prefix + "/image:" + digest[len("sha256:"):] }
