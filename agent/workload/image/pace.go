package image

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// A registry that sends fewer than leastRate bytes a second, during slowAfter of waiting for nothing but the registry,
// ends the pull: the host's GPUs are reserved for it meanwhile, free of charge.
const (
	leastRate = 1_000_000
	slowAfter = 2 * time.Minute
)

// pace measures how fast a registry sends the layers of one download. Time during which the daemon or the disk is slow
// does not count.
type pace struct {
	now func() time.Time

	mu            sync.Mutex
	open, reading int           // layers being downloaded, and how many of them wait for the registry
	since         time.Time     // start of the stretch that waited does not include yet
	waited        time.Duration // time in this window during which all layers waited
	bytes         int64         // bytes received in this window
	tooSlow       bool
}

// from returns a layer's body whose reads are measured until done is called.
func (p *pace) from(r io.Reader) (body io.Reader, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	p.open++
	return paced{p, r}, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.settle()
		p.open--
	}
}

// settle closes the stretch of time that ends now. Callers hold p.mu.
func (p *pace) settle() {
	now := p.now()
	if p.open > 0 && p.reading == p.open {
		p.waited += now.Sub(p.since)
	}
	p.since = now
	if p.waited < slowAfter {
		return
	}
	p.tooSlow = p.tooSlow || float64(p.bytes) < leastRate*p.waited.Seconds()
	p.waited, p.bytes = 0, 0
}

// slow returns why the download must end, or nil.
func (p *pace) slow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	if !p.tooSlow {
		return nil
	}
	return &Error{
		Reason: agentapi.ReasonRegistrySlow,
		Detail: fmt.Sprintf("the registry sent less than %.0f MB/s for %.0f s", leastRate/1e6, slowAfter.Seconds()),
	}
}

type paced struct {
	p *pace
	r io.Reader
}

func (r paced) Read(b []byte) (int, error) {
	r.p.mu.Lock()
	r.p.settle()
	r.p.reading++
	r.p.mu.Unlock()
	n, err := r.r.Read(b)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.settle()
	r.p.reading--
	r.p.bytes += int64(n)
	return n, err
}
