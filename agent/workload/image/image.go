// Package image pulls renters' images onto a host.
//
// Invariants: the Docker daemon pulls only from this package's registry on loopback and never from the network itself,
// because a registry can direct its clients to any address; this package connects to public addresses only. What
// reaches the daemon has the requested digest, except for volumes that a configuration declares, is built for this
// machine, and is smaller than the node's disk, both packed and unpacked. A pull that leaves the host's disk without
// room is aborted. Credentials stay in this process and in requests to the registry that they are for. Images that were
// not pulled by this package are never removed.
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
	// PullImage pulls ref and calls says with each layer's short digest and the daemon's progress on it. It may continue
	// for a while after ctx is done; the registry refuses everything then.
	PullImage(ctx context.Context, ref string, says func(layer, status string)) error
	// KeepImage tags ref as tag, removes the name ref, and returns the image's id and unpacked size in bytes.
	KeepImage(ctx context.Context, ref, tag string) (id string, size int64, err error)
	// FindImage returns the id and unpacked size in bytes of a tag's image, or "" if there is none.
	FindImage(ctx context.Context, tag string) (id string, size int64, err error)
	// ListImages returns the tags of a repository that the daemon has.
	ListImages(ctx context.Context, repository string) ([]string, error)
	// RemoveImage removes a tag and everything that only this tag refers to. It is no error if the tag does not exist.
	RemoveImage(ctx context.Context, tag string) error
}

// Config configures a Puller.
type Config struct {
	Daemon Daemon
	Dir    string                // folder for the list of pulled images
	Prefix string                // repository of its tags, distinct from other agents': "muster-1a2b3c4d"
	Allow  []string              // host:port of registries that may have a private address and use plain HTTP
	Free   func() (int64, error) // returns the free bytes of the disk for images
	Driver func() Driver         // returns the host's NVIDIA driver; nil: images are not compared with it
	Now    func() time.Time
	Log    *slog.Logger
}

// Request is an image that a lease needs.
type Request struct {
	Image    string // as written by the renter
	Digest   string // pins the image; "" means what the name refers to now
	Auth     *agentapi.RegistryAuth
	MaxBytes int64 // limit in bytes, packed and unpacked
	// MaxFetch limits how many bytes may be downloaded; 0 means no limit. An image that is already on the host needs no
	// download.
	MaxFetch int64
}

// Image is a pulled image.
type Image struct {
	ID     string // the daemon's id
	Digest string // digest of the manifest for this machine: sha256:…
	Pin    string // digest that the name refers to: this manifest, or the index that contains it
	Bytes  int64  // unpacked
}

// Puller pulls images. It is safe for concurrent use.
type Puller struct {
	cfg   Config
	guard *guard
	proxy *proxy
	store *store

	unfinished *unfinished

	mu      sync.Mutex
	flights map[string]*flight // downloads by digest
	pulling map[string]bool    // pulls that this process has requested of the daemon
}

// New opens the registry on loopback; Serve answers its requests.
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

// reportEvery is the interval of a pull's progress reports.
const reportEvery = 300 * time.Millisecond

// Pull downloads the image and returns when the daemon has it. It calls report from this goroutine from time to time.
// An *Error is final; after any other error the caller may call Pull again, which continues the download.
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
			img.Pin = f.pin // digest of this lease's name, which may differ from the one that began the download
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

// join returns the running download of an image, or starts one: one that was given up does not count, though the daemon
// may take a while to end it. It does not share a download with a tighter limit: an
// image that is too big for that lease may fit this one.
func (p *Puller) join(f *found, maxBytes int64) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprintf("%s/%d", f.digest, maxBytes)
	if fl := p.flights[key]; fl != nil && !fl.givenUp() {
		fl.waiting++
		return fl
	}
	ctx, cancel := context.WithCancel(context.Background())
	fl := &flight{
		ended:    ctx.Done(),
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
		p.mu.Lock()
		if p.flights[key] == fl { // not another one, after this was given up
			delete(p.flights, key)
		}
		p.mu.Unlock()
		cancel()
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
	// From here on the image is on the disk: finish, even if no caller waits any more.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	img.ID, img.Bytes, err = p.cfg.Daemon.KeepImage(ctx, ref, p.tag(img.Digest))
	if err != nil {
		return img, err
	}
	if most := fl.unpacked.of.Load(); img.Bytes > most { // the measured size differs from the daemon's result
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
	// leastFree is how many bytes of the disk for images a pull leaves free, whatever size the image claims: the daemon
	// and the workloads of the host use the same disk.
	leastFree = 2e9
)

// watch aborts a download if the disk runs full, by whatever cause, or if the registry is too slow. The daemon removes
// what it has downloaded. stop ends the watch.
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

// tag is the name that keeps an image on the host.
func (p *Puller) tag(digest string) string { return p.cfg.Prefix + "/image:" + digest[len("sha256:"):] }
