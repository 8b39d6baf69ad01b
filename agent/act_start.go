package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
)

func (a *Agent) pull(ctx context.Context, r *run, v view) error {
	spec := v.want
	if bad := slices.IndexFunc(spec.GPUs, func(u string) bool { return a.use.sick(u) != "" }); bad >= 0 {
		return container.Refusal{Reason: agentapi.ReasonGPUFailed, Detail: "GPU " + spec.GPUs[bad] + " is quarantined"}
	}
	if err := a.checks.yield(ctx, spec.GPUs); err != nil {
		return err
	}
	if err := a.use.refuseInUse(ctx, spec.GPUs); err != nil {
		return err
	}
	max := int64(1) << 50
	if spec.DiskGB > 0 {
		max = spec.DiskGB * 1e9
	}
	img, err := a.cfg.Images.Pull(ctx, image.Request{
		Image:    spec.Image,
		Digest:   spec.Digest,
		Auth:     spec.RegistryAuth,
		MaxBytes: max,
	},
		func(p agentapi.Progress) {
			a.runs.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
				st.Progress = p
				return st
			})
		})
	if err != nil {
		return err
	}
	a.images.report()
	a.use.noteUse(ctx, spec.GPUs)
	return a.runs.change(r, func(rec *record) {
		rec.Spec, rec.ImageID, rec.ImageDigest, rec.ImagePin = withoutSecrets(*spec), img.ID, img.Digest, img.Pin
	})
}

func (a *Agent) startGuest(ctx context.Context, r *run, v view) error {
	if err := r.files.Write(v.spec(), a.cfg.Resolvers); err != nil {
		return err
	}
	// The firewall table exists before any container: a container whose egress is not set yet reaches nothing.
	if err := a.network.ensure(ctx); err != nil {
		return err
	}
	c, err := a.cfg.Engine.EnsureGuest(ctx, v.spec(), r.files)
	if err != nil {
		return err
	}
	if err := a.runs.change(r, func(rec *record) {
		rec.BootID, rec.GuestID, rec.GuestIP = a.cfg.BootID, c.ID, c.IP
	}); err != nil {
		return err
	}
	return a.network.admit(ctx, r, c, v.spec().Egress)
}

// startAgain removes what is left of a node that died while it was starting; the next steps are those after the pull.
// Preflight figures that were measured remain valid: the path between the hosts is the same. The control plane is
// notified first: otherwise ranks that measure with the dead node would wait for it in vain, and blame the network.
func (a *Agent) startAgain(ctx context.Context, r *run, v view, s step) error {
	a.log.Warn("a node died while it was starting: it is started again", "lease", r.ref, "reason", s.outcome.Reason,
		"detail", s.outcome.Detail)
	if err := a.runs.change(r, func(rec *record) { rec.Died, rec.WGKey, rec.Endpoints = s.outcome, "", nil }); err != nil {
		return err
	}
	a.runs.mu.Lock()
	v.rec = r.rec
	a.runs.mu.Unlock()
	a.report(r, v, s)
	if err := a.takeDown(ctx, r); err != nil {
		return err
	}
	if err := r.files.ForgetStart(); err != nil {
		return err
	}
	return a.runs.change(r, func(rec *record) {
		rec.Deaths++
		rec.BootID, rec.GuestID, rec.GuestIP, rec.WorkID = "", "", netip.Addr{}, ""
		// The next guest's counters start at zero; the overlay's folder stays.
		rec.TrafficRead = withFlow(rec.TrafficRead, firewall.Traffic{})
	})
}

func (a *Agent) startOverlay(ctx context.Context, l *lease, r *run, v view) error {
	if !a.network.admitted(r, v.guest, v.spec().Egress) { // after a restart of the agent
		if err := a.network.admit(ctx, r, v.guest, v.spec().Egress); err != nil {
			return err
		}
	}
	n := v.spec().Network
	h, err := overlay.Ensure(ctx, overlay.Config{
		Dir:        r.files.Dir,
		Ref:        r.ref,
		NetNS:      v.guest.NetNS(),
		Address:    n.Address,
		CIDR:       n.CIDR,
		MTU:        n.MTU,
		Advertise:  a.cfg.Advertise,
		Interfaces: a.cfg.Underlay,
		Userspace:  a.cfg.Userspace,
		Command:    a.cfg.OverlayCommand,
		Patience:   a.cfg.OverlayPatience,
	})
	if err != nil {
		return err
	}
	relays, err := sendRelays(ctx, h, n)
	if err != nil {
		return err
	}
	// Stored before r.overlay is set: once the overlay counts as started, its key and endpoints are not read again.
	if err := a.runs.change(r, func(rec *record) { rec.WGKey, rec.Endpoints = h.PublicKey(), h.Endpoints() }); err != nil {
		return err
	}
	a.runs.mu.Lock()
	r.overlay, r.peers, r.relays = h, nil, relays
	if len(n.Peers) == 0 {
		r.peers = n.Peers
	}
	a.runs.mu.Unlock()
	a.workers.Go(func() { // restarts a killed overlay before a job notices
		if h.Wait(a.ctx) == nil {
			poke(l.kick)
		}
	})
	return nil
}

// relayAccess is the set of relays that was sent to an overlay, and the token that opens them.
type relayAccess struct {
	names []string
	token string
}

// stale reports whether the wanted relays or token differ from these. Without a token, after a restart of the agent,
// none are known here: the overlay keeps the relays that it has.
func (x relayAccess) stale(n agentapi.Network) bool {
	return n.RelayToken != "" && (x.token != n.RelayToken || !slices.Equal(x.names, n.Relays))
}

// sendRelays sends the cluster's relays to the overlay and returns the access that it sent. Open paths through the
// overlay's previous relays stay open.
func sendRelays(ctx context.Context, h *overlay.Handle, n agentapi.Network) (relayAccess, error) {
	if n.RelayToken == "" {
		return relayAccess{}, nil
	}
	return relayAccess{n.Relays, n.RelayToken}, h.SetRelays(ctx, n.Relays, n.RelayToken)
}

func (a *Agent) setRelays(ctx context.Context, r *run, v view) error {
	a.runs.mu.Lock()
	h := r.overlay
	a.runs.mu.Unlock()
	relays, err := sendRelays(ctx, h, v.spec().Network)
	if err != nil {
		return err
	}
	a.runs.mu.Lock()
	r.relays = relays
	a.runs.mu.Unlock()
	return nil
}

func (a *Agent) setPeers(ctx context.Context, r *run, v view) error {
	peers := v.spec().Network.Peers
	a.runs.mu.Lock()
	h := r.overlay
	a.runs.mu.Unlock()
	if err := a.setRelays(ctx, r, v); err != nil {
		return err
	}
	if err := h.SetPeers(ctx, peers); err != nil {
		return err
	}
	if err := a.runs.change(r, func(rec *record) { rec.Spec = withoutSecrets(v.spec()) }); err != nil {
		return err // stored too: an agent without a server has only what is on the disk
	}
	a.runs.mu.Lock()
	r.peers = peers
	a.runs.mu.Unlock()
	return nil
}

// preflight waits until the guest has the figures or the worker is needed elsewhere: an overlay that dies during the
// measurement is restarted while the measurement goes on in the guest. Meanwhile the workload is started up to its
// barrier: this takes the runtime about as long as the measurement takes the network, and nothing of the renter's runs
// before both are done. A workload with volumes is started once they are restored, which follows: it would slow the
// measurement down.
func (a *Agent) preflight(ctx context.Context, l *lease, r *run, v view) error {
	asking, cancel := untilKicked(ctx, l, longWait)
	defer cancel()
	begun := make(chan error, 1)
	if v.want != nil && v.work.State != container.Running && v.volumes.restored && !v.buckets.waiting &&
		!v.lazies.waiting {
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
	r.withdrawn = false
	a.runs.mu.Lock()
	h := r.overlay
	a.runs.mu.Unlock()
	settled(asking, h)
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
	return a.runs.change(r, func(rec *record) { rec.Preflight = &p })
}

// settled waits until the overlay has the tunnel that the workload will have, as far as that is foreseeable.
func settled(ctx context.Context, h *overlay.Handle) {
	const atMost, every = 4 * time.Second, 100 * time.Millisecond
	for deadline := time.Now().Add(atMost); h != nil && time.Now().Before(deadline); {
		if st, err := h.Status(ctx); err != nil || !st.Moving {
			return
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
	}
}

// withdraw ends a measurement that waits for an absent rank: its result would show nothing about the network. All ranks
// measure again, with their full time, once that rank has reported its address.
func (a *Agent) withdraw(ctx context.Context, r *run, v view) error {
	if r.withdrawn || v.spec().Nodes <= 1 || v.begun() {
		return nil
	}
	if err := guest.Dial(r.files.HoldSocket).Withdraw(ctx); err != nil {
		// The guest is still starting, or has died.
		a.log.Debug("withdraw the guest's measurement; it is retried", "lease", r.ref, "err", err)
		return nil
	}
	r.withdrawn = true
	if p := v.rec.Preflight; p != nil && !p.OK {
		return a.runs.change(r, func(rec *record) { rec.Preflight = nil })
	}
	return nil
}

// standBy makes the guest of a rank that was measured measure again with a rank that came back.
func (a *Agent) standBy(ctx context.Context, r *run, v view) error {
	if err := guest.Dial(r.files.HoldSocket).StandBy(ctx, guest.PreflightOf(v.spec())); err != nil {
		return err
	}
	r.withdrawn = false
	return nil
}

func (a *Agent) startWork(ctx context.Context, r *run, v view) error {
	if err := a.network.ensure(ctx); err != nil {
		return err
	}
	if p := v.rec.Preflight; p != nil && p.OK { // for a restarted guest: other ranks may still measure
		if err := guest.Dial(r.files.HoldSocket).StandBy(ctx, guest.PreflightOf(v.spec())); err != nil {
			a.log.Warn("the guest does not stand by for the other ranks' preflight", "lease", r.ref, "err", err)
		}
	}
	ports, err := a.rdma.of(ctx, r, *v.want)
	if err != nil {
		return err
	}
	set, err := a.giveCores(r, *v.want)
	if err != nil {
		return err
	}
	folders, err := a.shared.bind(ctx, r.ref, v)
	if err != nil {
		return err
	}
	a.storage.selves.serve(r, v)
	c, err := a.cfg.Engine.EnsureWorkload(ctx, container.WorkloadSpec{
		Lease:   *v.want,
		Guest:   v.guest.ID,
		ImageID: v.rec.ImageID,
		Files:   r.files,
		Cores:   set,
		Scratch: scratchOf(v),
		Binds:   slices.Concat(a.storage.binds(r.ref, v), folders),
		Resume:  v.volumes.label,
		Devices: a.cfg.GPUs.Devices.DeviceNodes(v.want.GPUs...),
		RDMA:    ports,
	})
	if err != nil {
		if errors.As(err, new(container.Refusal)) { // after any other error, Docker may still be creating it
			a.freeCores(ctx, r)
		}
		return err
	}
	return a.runs.change(r, func(rec *record) {
		rec.WorkID = c.ID
		holdCores(rec, c)
	})
}

// awaitWorkload waits until the workload's init reports a change, or the worker is needed elsewhere.
func (a *Agent) awaitWorkload(ctx context.Context, l *lease, r *run, v view) (time.Duration, error) {
	ctx, cancel := untilKicked(ctx, l, watchEvery)
	defer cancel()
	_, err := guest.Dial(r.files.HoldSocket).Next(ctx, v.report.State)
	if err != nil && ctx.Err() == nil {
		return 100 * time.Millisecond, nil // the guest is starting, or has died: the next look finds out
	}
	return 0, nil
}

// untilKicked returns a context that ends after limit, or when the lease must be looked at again.
func untilKicked(ctx context.Context, l *lease, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	go func() {
		select {
		case <-l.kick:
			if ctx.Err() != nil {
				poke(l.kick) // left for the next wait
			}
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
