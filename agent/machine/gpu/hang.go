package gpu

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// hang is the outcome of the last trial that followed a hang. Several calls may hang at once: those that were sent
// before the trial ended share its outcome if it concerns them.
type hang struct {
	sync.Mutex // held during a trial: a second one would kill the probe of the first
	gpu        string
	stall      bool // the driver answered for no GPU
	ended      time.Time
}

// hung is called by the prober when a call that was sent at a time has outlasted its deadline. The hang is evidence
// against the GPU only if the driver answers for another GPU, called alone in a new probe, and the call then hangs once
// more: if the driver as a whole hangs for a while (because its system processor restarts, for example), no single GPU
// is the cause.
func (dr *driver) hung(r wire.Request, sent time.Time) {
	dr.reg.log.Error(dr.reg.maker.driver()+" hangs; the GPU probe is replaced", "gpu", r.GPU, "call", r.Method)
	if r.GPU == "" {
		return
	}
	h := &dr.hang
	h.Lock()
	defer h.Unlock()
	if sent.After(h.ended) || !h.stall && h.gpu != r.GPU {
		h.gpu, h.stall = r.GPU, dr.trial(r)
		h.ended = time.Now()
	}
	if h.stall {
		dr.probe.unshun(r.GPU)
	}
}

// trial finds out whether a call hangs because of its GPU, and records the evidence if so. stall means that the driver
// as a whole hung.
func (dr *driver) trial(r wire.Request) (stall bool) {
	ctx, cancel := dr.trialTime()
	defer cancel()
	if err := dr.tryDriver(ctx, r.GPU); err != nil {
		dr.reg.log.Warn("no GPU is accused of the hang: the driver answers for no other either", "gpu", r.GPU, "err", err)
		return true
	}
	if err := dr.try(ctx, r); !errors.As(err, new(*errHang)) {
		dr.reg.log.Warn("no GPU is accused of the hang: the call did not hang again", "gpu", r.GPU, "err", err)
		return true
	}
	if e, ok := CallEvidence(&errHang{dr.reg.maker.driver(), r.GPU, r.Method}); ok {
		dr.diagnosis.accuse(r.GPU, e)
	}
	return false
}

// trialTime returns a context that ends when three trials, each with a new probe, must be over.
func (dr *driver) trialTime() (context.Context, context.CancelFunc) {
	t := dr.reg.cfg.timing
	return context.WithTimeout(dr.ctx, 3*(t.start+t.call+t.late))
}

// trials is how many other GPUs are called to find out whether the driver answers at all.
const trials = 2

// tryDriver calls up to two GPUs other than uuid, one after the other and those that have not hung first. If there is
// no other GPU, it calls the driver itself. It returns nil as soon as there is an answer.
func (dr *driver) tryDriver(ctx context.Context, uuid string) error {
	var others, hung []string
	dr.reg.mu.Lock()
	for _, d := range dr.reg.sys.Devices {
		switch {
		case d.UUID == "" || d.UUID == uuid:
		case dr.probe.mayCall(d.UUID) == nil:
			others = append(others, d.UUID)
		default:
			hung = append(hung, d.UUID)
		}
	}
	dr.reg.mu.Unlock()
	others = append(others, hung...)
	if len(others) == 0 {
		return dr.try(ctx, wire.Request{Method: wire.MethodSystem})
	}
	var err error
	for _, other := range others[:min(trials, len(others))] {
		if err = dr.try(ctx, wire.Request{Method: wire.MethodCondition, GPU: other}); err == nil {
			return nil
		}
	}
	return err
}

// try returns nil if the driver answers a request, even with a refusal.
func (dr *driver) try(ctx context.Context, r wire.Request) error {
	r.Trial = true
	err := dr.probe.request(ctx, r, nil)
	if errors.As(err, new(*wire.Error)) {
		return nil
	}
	return err
}
