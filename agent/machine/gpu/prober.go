package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/fault"
)

// timing holds the durations that tests shorten.
type timing struct {
	start    time.Duration // limit of the first answer: NVML takes seconds to start without persistence mode
	call     time.Duration // limit of every other answer
	late     time.Duration // extra limit for a probe that gets no processor time
	restart  time.Duration // least time between two starts of the probe; doubles up to maxRest
	maxRest  time.Duration
	shun     time.Duration // how long a GPU that hung gets no calls; doubles up to maxShun
	maxShun  time.Duration
	settled  time.Duration // a probe that lived this long restarts without delay
	watch    time.Duration // time between two looks at every GPU's condition
	recovers time.Duration // a suspect GPU without new evidence for this long is healthy
	slow     time.Duration // a GPU that is slowed down for this long is degraded
	steady   time.Duration // a degraded GPU that nothing slowed down for this long is degraded no longer
	wakes    time.Duration // an unknown error is no evidence for this long after the host was suspended
	calm     time.Duration // a GPU that its owner has not used for this long is free
	settle   time.Duration // how long a reset GPU's registration with the NVSwitches may take
	poll     time.Duration // time between two looks at that
}

func (t *timing) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&t.start, 30*time.Second)
	set(&t.call, 5*time.Second)
	set(&t.late, 30*time.Second)
	set(&t.restart, 200*time.Millisecond)
	set(&t.maxRest, 30*time.Second)
	set(&t.shun, 30*time.Second)
	set(&t.maxShun, 10*time.Minute)
	set(&t.settled, time.Minute)
	set(&t.watch, 10*time.Second)
	set(&t.recovers, 10*time.Minute)
	set(&t.slow, time.Minute)
	set(&t.steady, 10*time.Minute)
	set(&t.wakes, 2*time.Minute)
	set(&t.calm, 30*time.Second)
	set(&t.settle, time.Minute)
	set(&t.poll, time.Second)
}

// maxStuck is how many killed probes may hang in the driver before no new one is started: each holds memory and, it
// seems, the driver.
const maxStuck = 4

// resends is how often a call is sent again whose probe ended: one GPU that hangs ends two probes, see driver.hung.
const resends = 2

// errHang is the error of a call that outlasted its deadline.
type errHang struct{ driver, gpu, method string }

func (e *errHang) Error() string {
	if e.gpu == "" {
		return e.driver + " did not answer in time (" + e.method + ")"
	}
	return fmt.Sprintf("%s did not answer in time (%s)", e.gpu, e.method)
}

// errShunned is the error of a call about a GPU that hung and gets no calls for a while.
type errShunned struct{ gpu string }

func (e *errShunned) Error() string { return e.gpu + " hung in the driver; it is asked again later" }

// prober keeps a probe child running and puts a deadline on every call. It never waits for a child that is stuck.
type prober struct {
	cfg    Config
	driver string // its name in sentences
	time   timing
	events chan wire.Event
	onHang func(r wire.Request, sent time.Time)

	mu     sync.Mutex
	closed bool
	paused int
	child  *child
	warm   bool      // the present child has answered once
	next   time.Time // earliest time of the next start
	rest   time.Duration
	starts int
	killed []*child // stuck children, until reaped
	shun   map[string]shunned
	places map[string]string // PCI bus ids by UUID, as last seen
}

type shunned struct {
	until time.Time
	rest  time.Duration
}

func newProber(cfg Config, driver string, onHang func(r wire.Request, sent time.Time)) *prober {
	return &prober{
		cfg:    cfg,
		driver: driver,
		time:   cfg.timing,
		events: make(chan wire.Event, 64),
		onHang: onHang,
		shun:   map[string]shunned{},
		places: map[string]string{},
	}
}

// running returns the present child, and starts one if there is none. It waits out the pause between two starts, as
// long as ctx allows.
func (p *prober) running(ctx context.Context) (c *child, warm bool, err error) {
	for {
		c, warm, wait, err := p.tryRunning()
		if err != nil || c != nil {
			return c, warm, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, false, fault.Wrap(ctx.Err(), fault.Unavailable, "the GPU probe is not running")
		}
	}
}

func (p *prober) tryRunning() (c *child, warm bool, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.closed:
		return nil, false, 0, fault.New(fault.Unavailable, "the GPU probe is closed")
	case p.child != nil && p.child.alive():
		return p.child, p.warm, 0, nil
	case p.child != nil:
		p.retire(now)
	}
	if p.paused > 0 {
		return nil, false, p.time.restart, nil
	}
	if wait := p.next.Sub(now); wait > 0 {
		return nil, false, wait, nil
	}
	if n := p.stuck(); n >= maxStuck {
		return nil, false, 0, fault.New(fault.Unavailable, "%d GPU probes hang in %s: the host must be rebooted", n,
			p.driver)
	}
	c, err = startChild(p.cfg, p.events, now)
	if err != nil {
		p.next = now.Add(p.time.maxRest)
		return nil, false, 0, fault.Wrap(err, fault.Unavailable, "the GPU probe does not start")
	}
	p.child, p.warm = c, false
	p.starts++
	return c, false, 0, nil
}

// retire records the end of the present child and when the next may start. p.mu is held.
func (p *prober) retire(now time.Time) {
	p.killed = append(p.killed, p.child)
	if now.Sub(p.child.started) >= p.time.settled {
		p.rest = 0
	}
	p.rest = min(max(2*p.rest, p.time.restart), p.time.maxRest)
	p.next = p.child.started.Add(p.rest)
	p.child = nil
}

// stuck returns the number of children that were killed and still exist. p.mu is held.
func (p *prober) stuck() int {
	left := p.killed[:0]
	for _, c := range p.killed {
		select {
		case <-c.reaped:
		default:
			left = append(left, c)
		}
	}
	p.killed = left
	return len(left)
}

// call sends a request to the probe and decodes the answer into out. If the deadline passes, call kills the probe,
// calls onHang, and blocks calls about the GPU for a while; other calls that fail with the probe are sent again to the
// next one.
func (p *prober) call(ctx context.Context, method, uuid string, out any) error {
	return p.request(ctx, wire.Request{Method: method, GPU: uuid}, out)
}

// request is like call, with a full Request.
func (p *prober) request(ctx context.Context, r wire.Request, out any) error {
	for attempt := 0; ; attempt++ {
		if err := p.mayCall(r.GPU); err != nil && !r.Trial {
			return err
		}
		r.PCI = p.placeOf(r.GPU)
		err := p.callOnce(ctx, r, out)
		if attempt < resends && errors.Is(err, errGone) && ctx.Err() == nil {
			continue
		}
		if errors.Is(err, errGone) {
			return fault.Wrap(err, fault.Unavailable, "the GPU probe keeps ending")
		}
		return err
	}
}

func (p *prober) callOnce(ctx context.Context, r wire.Request, out any) error {
	c, warm, err := p.running(ctx)
	if err != nil {
		return err
	}
	if !warm && r.Method != wire.MethodStart {
		// MethodStart goes first and alone: a hang of NVML's start must not be attributed to the GPU of the request.
		var refusal *wire.Error
		if err := p.callOnce(ctx, wire.Request{Method: wire.MethodStart}, nil); err != nil && !errors.As(err, &refusal) {
			return err
		}
	}
	patience := p.time.call
	switch r.Method {
	case wire.MethodStart, wire.MethodRemake, wire.MethodReset: // the latter two erase memory
		patience = p.time.start
	}
	sent := time.Now()
	answer, forget, err := c.request(r, patience)
	if err != nil {
		return err
	}
	defer forget()
	m, err := p.await(ctx, c, answer, patience)
	switch {
	case errors.Is(err, errOverdue):
		c.kill()
		if !r.Trial {
			p.hung(r, sent)
		}
		return &errHang{p.driver, r.GPU, r.Method}
	case err != nil:
		return err
	}
	p.answered(c, r.GPU)
	if m.Error != nil {
		return m.Error
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(m.Result, out)
}

// errOverdue is the error of a call whose answer only the driver delays.
var errOverdue = errors.New("overdue")

// await returns the answer to a call, or errOverdue. On a machine short of processor time, a probe that did not get to
// run must not count as a GPU that hangs. So after the deadline the probe gets a ping, which needs no driver, and the
// call is overdue only once the ping is answered. If the ping is not answered either, await gives the probe up after a
// while.
func (p *prober) await(ctx context.Context, c *child, answer <-chan wire.Message,
	patience time.Duration) (wire.Message, error) {
	var pong <-chan wire.Message
	for _, wait := range []time.Duration{patience, p.time.late, patience} {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case m, ok := <-answer:
			if !ok {
				return m, errGone
			}
			return m, nil
		case <-ctx.Done():
			return wire.Message{}, ctx.Err()
		case <-timer.C:
			if pong != nil {
				return wire.Message{}, errOverdue
			}
			asked, forget, err := c.request(wire.Request{Method: wire.MethodPing}, p.time.late)
			if err != nil {
				return wire.Message{}, err
			}
			defer forget()
			pong = asked
		case <-pong:
			pong = make(chan wire.Message) // ping answered: requests before it have had their turn, too
		}
	}
	return wire.Message{}, errOverdue
}

// seenAt records where a GPU is on the PCI bus: a new probe looks for it there first.
func (p *prober) seenAt(uuid, pci string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places[uuid] = pci
}

func (p *prober) placeOf(uuid string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places[uuid]
}

func (p *prober) mayCall(uuid string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.shun[uuid]; ok && time.Now().Before(s.until) {
		return &errShunned{uuid}
	}
	return nil
}

func (p *prober) answered(c *child, uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == c {
		p.warm = true
	}
	delete(p.shun, uuid)
}

func (p *prober) hung(r wire.Request, sent time.Time) {
	p.mu.Lock()
	rest := min(max(2*p.shun[r.GPU].rest, p.time.shun), p.time.maxShun)
	if r.GPU != "" {
		p.shun[r.GPU] = shunned{time.Now().Add(rest), rest}
	}
	p.mu.Unlock()
	p.onHang(r, sent)
}

// unshun allows calls about a GPU again at once.
func (p *prober) unshun(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.shun, uuid)
}

// pause ends the child, waits until it is gone and keeps a new one from starting until release is called: in between no
// process of the agent has a GPU open.
func (p *prober) pause(ctx context.Context) (release func(), err error) {
	p.mu.Lock()
	p.paused++
	c := p.child
	p.mu.Unlock()
	release = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.paused--
	}
	if c == nil {
		return release, nil
	}
	c.quit()
	select {
	case <-c.reaped:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, fault.Wrap(ctx.Err(), fault.Unavailable, "the GPU probe hangs in %s", p.driver)
	}
}

// close ends the child. It waits for that no longer than device.Linger: a child that is stuck in the driver may stay.
func (p *prober) close() {
	p.mu.Lock()
	p.closed = true
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return
	}
	c.quit()
	select {
	case <-c.reaped:
	case <-time.After(device.Linger):
	}
}
