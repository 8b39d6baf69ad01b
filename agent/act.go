package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/guest"
	"github.com/musterhq/muster/agent/image"
	"github.com/musterhq/muster/agent/overlay"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

const (
	watchEvery = 2 * time.Second // how often a running node is looked at when nothing tells
	longWait   = 15 * time.Second
)

// act does a step. It returns how long to wait before the next look; 0 is at once.
func (a *Agent) act(ctx context.Context, l *lease, r *run, v view, s step) (time.Duration, error) {
	switch s.do {
	case actPull:
		return 0, a.pull(ctx, r, v)
	case actStartGuest:
		return 0, a.startGuest(ctx, r, v)
	case actStartAgain:
		return 0, a.startAgain(ctx, r)
	case actStartOverlay:
		return 0, a.startOverlay(ctx, l, r, v)
	case actSetPeers:
		return 0, a.setPeers(ctx, r, v)
	case actSetRelays:
		return 0, a.setRelays(ctx, r, v)
	case actPreflight:
		return 0, a.preflight(ctx, l, r, v)
	case actStartWork:
		return 0, a.startWork(ctx, r, v)
	case actAwaitStart:
		if err := r.files.Release(r.ref); err != nil { // again: an agent may die between its note and the release
			return 0, err
		}
		return a.awaitWorkload(ctx, l, r, v)
	case actAwaitInit:
		return a.awaitWorkload(ctx, l, r, v)
	case actRelease:
		if err := a.change(r, func(rec *record) { rec.Released, rec.ReleaseBoot = true, a.cfg.BootMS() }); err != nil {
			return 0, err
		}
		if err := r.files.Release(r.ref); err != nil {
			return 0, err
		}
		return a.awaitWorkload(ctx, l, r, v)
	case actNoteStart:
		if err := a.noteStart(ctx, r, v); err != nil {
			return 0, err
		}
		a.mu.Lock()
		v.rec = r.rec
		a.mu.Unlock()
		a.report(r, v, step{do: actWatch}) // at once: the cluster runs when its last rank has said so
		return 0, nil
	case actWatch:
		return watchEvery, nil
	case actAwaitGo, actAwaitPeers:
		return watchEvery, nil
	case actConclude:
		return 0, a.conclude(r, v, s.outcome)
	case actStopWork:
		return 0, a.stopWork(ctx, r, v)
	case actKeepLog:
		return 0, a.keepLog(ctx, r, v)
	case actTearDown:
		return 0, a.tearDown(ctx, r)
	case actWipe:
		return 0, a.wipe(ctx, r, v)
	case actForget:
		return 0, a.forget(r)
	}
	return longWait, nil
}

// overlayTries is how often an overlay is started before the node counts as failed.
const overlayTries = 5

// pullPatience is for how long a registry that does not answer is asked again before the node counts as failed.
const pullPatience = time.Minute

// refusals is how often the runtime's refusal is asked for again: a container that was killed while it was being
// started, or an engine that is coming back, looks like one.
const refusals = 3

// final is the outcome of an error that repeating does not mend; nil when it may. The step has failed tries times in a
// row before, and failing is how long ago it did first.
func final(do action, err error, tries int, failing time.Duration) *outcome {
	var img *image.Error
	var away *image.Away
	var refusal container.Refusal
	switch {
	case errors.As(err, &img):
		return failed(img.Reason, img.Detail)
	case errors.As(err, &away) && failing >= pullPatience:
		return failed(agentapi.ReasonRegistryAway, away.Says())
	case errors.As(err, &refusal) && (refusal.Reason != agentapi.ReasonRuntimeFailed || tries >= refusals):
		return failed(refusal.Reason, refusal.Detail)
	case do == actStartOverlay && tries >= overlayTries:
		return failed(agentapi.ReasonOverlayFailed, safe(err))
	}
	return nil
}

// safe is what people may read of an error.
func safe(err error) string {
	if f := fault.From(err); f != nil {
		return f.Message
	}
	var away *image.Away
	if errors.As(err, &away) {
		return away.Says() + "; it is asked again"
	}
	return "a step failed on the host and is tried again"
}

func (a *Agent) pull(ctx context.Context, r *run, v view) error {
	spec := v.want
	if bad := slices.IndexFunc(spec.GPUs, func(u string) bool { return a.sick(u) != "" }); bad >= 0 {
		return container.Refusal{Reason: agentapi.ReasonGPUFailed, Detail: "GPU " + spec.GPUs[bad] + " is quarantined"}
	}
	max := int64(1) << 50
	if spec.DiskGB > 0 {
		max = spec.DiskGB * 1e9
	}
	img, err := a.cfg.Images.Pull(ctx, image.Request{Image: spec.Image, Digest: spec.Digest, Auth: spec.RegistryAuth, MaxBytes: max},
		func(p agentapi.Progress) {
			a.say(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
				st.Progress = p
				return st
			})
		})
	if err != nil {
		return err
	}
	a.tellImages()
	a.noteUse(ctx, spec.GPUs)
	return a.change(r, func(rec *record) {
		rec.Spec, rec.ImageID, rec.ImageDigest, rec.ImagePin = withoutSecrets(*spec), img.ID, img.Digest, img.Pin
	})
}

// noteUse remembers who uses a lease's GPUs before anything of the renter's runs, such as the owner's desktop: wipe does
// not wait for that. It is called before the record says that there is an image, without which wipe waits for nothing.
func (a *Agent) noteUse(ctx context.Context, gpus []string) {
	if a.cfg.Attach == container.AttachNone || len(gpus) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := a.cfg.GPUs.NoteBefore(ctx, gpus...); err != nil {
		a.log.Warn("who uses the GPUs before the lease is not known: its end may wait for them", "err", err)
	}
}

// tellImages sends the inventory when the images it names have changed.
func (a *Agent) tellImages() {
	names := map[string]string{}
	for _, i := range a.cfg.Images.Cached() {
		names[i.Ref] = i.Digest
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !maps.Equal(names, a.images) {
		a.images = names
		poke(a.inventory)
	}
}

func (a *Agent) startGuest(ctx context.Context, r *run, v view) error {
	if err := r.files.Write(v.spec(), a.cfg.Resolvers); err != nil {
		return err
	}
	// The table is there before any container is: one whose egress is not set yet reaches nothing.
	if err := a.ensureFirewall(ctx); err != nil {
		return err
	}
	c, err := a.cfg.Engine.EnsureGuest(ctx, v.spec(), r.files)
	if err != nil {
		return err
	}
	if err := a.change(r, func(rec *record) { rec.BootID, rec.GuestID, rec.GuestIP = a.cfg.BootID, c.ID, c.IP }); err != nil {
		return err
	}
	return a.admit(ctx, r, c, v.spec().Egress)
}

// startAgain takes down what is left of a node that died while it was starting: the next steps are those after the
// pull. Figures that were measured stand: the way between the hosts is the same.
func (a *Agent) startAgain(ctx context.Context, r *run) error {
	a.log.Warn("a node died while it was starting: it is started again", "lease", r.ref)
	if err := a.takeDown(ctx, r); err != nil {
		return err
	}
	if err := r.files.ForgetStart(); err != nil {
		return err
	}
	return a.change(r, func(rec *record) {
		rec.Deaths++
		rec.BootID, rec.GuestID, rec.GuestIP, rec.WorkID = "", "", netip.Addr{}, ""
	})
}

func (a *Agent) startOverlay(ctx context.Context, l *lease, r *run, v view) error {
	if !a.admitted(r, v.guest, v.spec().Egress) { // after a restart of the agent
		if err := a.admit(ctx, r, v.guest, v.spec().Egress); err != nil {
			return err
		}
	}
	n := v.spec().Network
	h, err := overlay.Ensure(ctx, overlay.Config{Dir: r.files.Dir, Ref: r.ref, NetNS: v.guest.NetNS(), Address: n.Address, CIDR: n.CIDR,
		MTU: n.MTU, Advertise: a.cfg.Advertise, Userspace: a.cfg.Userspace, Command: a.cfg.OverlayCommand})
	if err != nil {
		return err
	}
	relays, err := tellRelays(ctx, h, n)
	if err != nil {
		return err
	}
	a.mu.Lock()
	r.overlay, r.peers, r.relays = h, nil, relays
	if len(n.Peers) == 0 {
		r.peers = n.Peers
	}
	a.mu.Unlock()
	a.workers.Go(func() { // a killed overlay is started again before a job notices
		if h.Wait(a.ctx) == nil {
			poke(l.kick)
		}
	})
	return a.change(r, func(rec *record) { rec.WGKey, rec.Endpoints = h.PublicKey(), h.Endpoints() })
}

// relayAccess is which relays an overlay was told of, and the token that opens them.
type relayAccess struct {
	names []string
	token string
}

// stale reports whether other relays or another token are wanted. Without a token, after a restart of the agent, none
// are known here: the overlay keeps what it has.
func (x relayAccess) stale(n agentapi.Network) bool {
	return n.RelayToken != "" && (x.token != n.RelayToken || !slices.Equal(x.names, n.Relays))
}

// tellRelays tells the overlay of the cluster's relays and returns what it was told. The ways through relays it had
// before go on.
func tellRelays(ctx context.Context, h *overlay.Handle, n agentapi.Network) (relayAccess, error) {
	if n.RelayToken == "" {
		return relayAccess{}, nil
	}
	return relayAccess{n.Relays, n.RelayToken}, h.SetRelays(ctx, n.Relays, n.RelayToken)
}

func (a *Agent) setRelays(ctx context.Context, r *run, v view) error {
	a.mu.Lock()
	h := r.overlay
	a.mu.Unlock()
	relays, err := tellRelays(ctx, h, v.spec().Network)
	if err != nil {
		return err
	}
	a.mu.Lock()
	r.relays = relays
	a.mu.Unlock()
	return nil
}

func (a *Agent) setPeers(ctx context.Context, r *run, v view) error {
	peers := v.spec().Network.Peers
	a.mu.Lock()
	h := r.overlay
	a.mu.Unlock()
	if err := a.setRelays(ctx, r, v); err != nil {
		return err
	}
	if err := h.SetPeers(ctx, peers); err != nil {
		return err
	}
	a.mu.Lock()
	r.peers = peers
	a.mu.Unlock()
	return a.change(r, func(rec *record) { rec.Spec = withoutSecrets(v.spec()) })
}

// preflight waits for the figures, or until the worker is wanted for something else: an overlay that dies meanwhile is
// started again under the measurement, which goes on in the guest. Meanwhile the workload is brought to its barrier: that
// takes the runtime as long as the measurement takes the network, and nothing of the renter's runs before both are done.
func (a *Agent) preflight(ctx context.Context, l *lease, r *run, v view) error {
	asking, cancel := untilKicked(ctx, l, longWait)
	defer cancel()
	begun := make(chan error, 1)
	if v.want != nil && v.work.State != container.Running {
		go func() {
			err := a.startWork(ctx, r, v)
			if err != nil {
				cancel()
			}
			begun <- err
		}()
	} else {
		begun <- nil
	}
	p, err := guest.Dial(r.files.HoldSocket).Preflight(asking, guest.PreflightOf(v.spec()))
	if err := <-begun; err != nil {
		return err
	}
	if err != nil {
		if asking.Err() != nil {
			return nil
		}
		return err
	}
	return a.change(r, func(rec *record) { rec.Preflight = &p })
}

func (a *Agent) startWork(ctx context.Context, r *run, v view) error {
	if err := a.ensureFirewall(ctx); err != nil {
		return err
	}
	if p := v.rec.Preflight; p != nil && p.OK { // for a guest that was started again: other ranks may still measure
		if err := guest.Dial(r.files.HoldSocket).StandBy(ctx, guest.PreflightOf(v.spec())); err != nil {
			a.log.Warn("the guest does not stand by for the other ranks' preflight", "lease", r.ref, "err", err)
		}
	}
	c, err := a.cfg.Engine.EnsureWorkload(ctx, container.WorkloadSpec{Lease: *v.want, Guest: v.guest.ID, ImageID: v.rec.ImageID, Files: r.files})
	if err != nil {
		return err
	}
	return a.change(r, func(rec *record) { rec.WorkID = c.ID })
}

// awaitWorkload waits until the init says something new, or the worker is wanted for something else.
func (a *Agent) awaitWorkload(ctx context.Context, l *lease, r *run, v view) (time.Duration, error) {
	ctx, cancel := untilKicked(ctx, l, watchEvery)
	defer cancel()
	_, err := guest.Dial(r.files.HoldSocket).Next(ctx, v.report.State)
	if err != nil && ctx.Err() == nil {
		return 100 * time.Millisecond, nil // the guest is just coming up, or has died: the next look tells
	}
	return 0, nil
}

// untilKicked is a context that ends after limit, or when the lease is to be looked at again.
func untilKicked(ctx context.Context, l *lease, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	go func() {
		select {
		case <-l.kick:
			if ctx.Err() != nil {
				poke(l.kick) // for the next to wait
			}
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (a *Agent) conclude(r *run, v view, o *outcome) error {
	a.log.Info("lease ends", "lease", r.ref, "state", o.State, "reason", o.Reason, "detail", o.Detail)
	if v.work.State != container.Running {
		if o.ExitCode != nil {
			o.ExitBoot, _ = a.lastSign(r, v)
		}
		v.rec.Outcome = o
		if err := a.endMeter(r, v); err != nil {
			return err
		}
	}
	return a.change(r, func(rec *record) { rec.Outcome = o })
}

// maxGrace bounds what a renter's program may take to end, unbilled.
const maxGrace = 30 * time.Second

func (a *Agent) stopWork(ctx context.Context, r *run, v view) error {
	if err := a.journal.Cut(r.ref); err != nil {
		return err
	}
	grace := min(time.Duration(v.spec().GraceS)*time.Second, maxGrace)
	if !v.rec.Started || v.rec.Outcome.Reason == agentapi.ReasonSuperseded {
		grace = 0
	}
	ctx, cancel := context.WithTimeout(ctx, grace+time.Minute)
	defer cancel()
	return a.cfg.Engine.Stop(ctx, r.ref, container.Work, grace)
}

func (a *Agent) keepLog(ctx context.Context, r *run, v view) error {
	if err := a.endMeter(r, v); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	kept, err := a.saveLog(ctx, r)
	if err != nil {
		return err
	}
	return a.change(r, func(rec *record) { rec.LogSaved, rec.LogKept = true, kept })
}

func (a *Agent) tearDown(ctx context.Context, r *run) error {
	if err := a.takeDown(ctx, r); err != nil {
		return err
	}
	return a.change(r, func(rec *record) { rec.Down = true })
}

// takeDown removes a run's containers, overlay and passage.
func (a *Agent) takeDown(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := a.cfg.Engine.Remove(ctx, r.ref, container.Work); err != nil {
		return err
	}
	if err := overlay.Stop(ctx, r.files.Dir); err != nil {
		return err
	}
	if err := a.cfg.Engine.Remove(ctx, r.ref, container.Guest); err != nil {
		return err
	}
	if err := a.expel(ctx, r); err != nil {
		return err
	}
	a.mu.Lock()
	r.overlay, r.peers = nil, nil
	a.mu.Unlock()
	return nil
}

// wipe makes sure that nothing of the renter's is left, in memory of the GPUs too, and that this epoch never runs here
// again, before it says so.
func (a *Agent) wipe(ctx context.Context, r *run, v view) error {
	if err := a.endMeter(r, v); err != nil {
		return err
	}
	if gpus := v.spec().GPUs; a.cfg.Attach != container.AttachNone && len(gpus) > 0 && v.rec.ImageID != "" {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := a.cfg.GPUs.WaitClean(ctx, gpus...); err != nil {
			return fault.Wrap(err, fault.Unavailable, "memory of the lease's GPUs is still in use")
		}
	}
	rec := v.rec
	rec.Gone, rec.Down = true, true
	status := statusOf(r.ref, view{rec: rec, boot: v.boot}, agentapi.Progress{})
	if err := a.disk.bury(status); err != nil {
		return fmt.Errorf("tombstone: %w", err)
	}
	if err := a.disk.wipe(r.ref); err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	if err := a.change(r, func(rec *record) { rec.Gone, rec.Down = true, true }); err != nil {
		return err
	}
	a.say(r, func(agentapi.LeaseStatus) agentapi.LeaseStatus { return status })
	return nil
}

func (a *Agent) forget(r *run) error {
	if err := a.disk.remove(r.ref); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.leases[r.ref.Lease]
	l.runs = slices.DeleteFunc(l.runs, func(x *run) bool { return x == r })
	poke(a.syncNow)
	return nil
}
