package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/firewall"
	"github.com/musterhq/muster/agent/guest"
	"github.com/musterhq/muster/agent/image"
	"github.com/musterhq/muster/agent/overlay"
	"github.com/musterhq/muster/internal/agentapi"
)

func (a *Agent) pull(ctx context.Context, r *run, v view) error {
	spec := v.want
	if bad := slices.IndexFunc(spec.GPUs, func(u string) bool { return a.sick(u) != "" }); bad >= 0 {
		return container.Refusal{Reason: agentapi.ReasonGPUFailed, Detail: "GPU " + spec.GPUs[bad] + " is quarantined"}
	}
	if err := a.refuseInUse(ctx, spec.GPUs); err != nil {
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
			a.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
				st.Progress = p
				return st
			})
		})
	if err != nil {
		return err
	}
	a.reportImages()
	a.noteUse(ctx, spec.GPUs)
	return a.change(r, func(rec *record) {
		rec.Spec, rec.ImageID, rec.ImageDigest, rec.ImagePin = withoutSecrets(*spec), img.ID, img.Digest, img.Pin
	})
}

// refuseInUse refuses a node whose GPUs the host's owner uses: both would run out of memory. The market does not offer
// such a GPU; this catches an owner who began within the last seconds. The renter sees which GPU it is, not what its
// owner runs.
func (a *Agent) refuseInUse(ctx context.Context, gpus []string) error {
	if len(gpus) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	used := a.cfg.GPUs.InUse(ctx, gpus...)
	if len(used) == 0 {
		return nil
	}
	a.log.Warn("a lease is refused: its GPUs are in use on the host itself", "use", used)
	return container.Refusal{
		Reason: agentapi.ReasonGPUInUse,
		Detail: "in use by the host's owner: " + strings.Join(slices.Sorted(maps.Keys(used)), ", "),
	}
}

// noteUse remembers who uses a lease's GPUs before anything of the renter's runs, such as the owner's desktop: wipe
// does not wait for that. It is called before the record says that there is an image, without which wipe waits for
// nothing.
func (a *Agent) noteUse(ctx context.Context, gpus []string) {
	if a.cfg.Simulated || len(gpus) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := a.cfg.GPUs.NoteBefore(ctx, gpus...); err != nil {
		a.log.Warn("who uses the GPUs before the lease is not known: its end may wait for them", "err", err)
	}
}

// reportImages sends the inventory when the images it names have changed.
func (a *Agent) reportImages() {
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
	if err := a.change(r, func(rec *record) {
		rec.BootID, rec.GuestID, rec.GuestIP = a.cfg.BootID, c.ID, c.IP
	}); err != nil {
		return err
	}
	return a.admit(ctx, r, c, v.spec().Egress)
}

// startAgain takes down what is left of a node that died while it was starting: the next steps are those after the
// pull. Figures that were measured stand: the way between the hosts is the same. The control plane is told first: ranks
// that measure with the dead node would wait for it in vain, and blame the network.
func (a *Agent) startAgain(ctx context.Context, r *run, v view, s step) error {
	a.log.Warn("a node died while it was starting: it is started again", "lease", r.ref, "reason", s.outcome.Reason,
		"detail", s.outcome.Detail)
	if err := a.change(r, func(rec *record) { rec.Died, rec.WGKey, rec.Endpoints = s.outcome, "", nil }); err != nil {
		return err
	}
	a.mu.Lock()
	v.rec = r.rec
	a.mu.Unlock()
	a.report(r, v, s)
	if err := a.takeDown(ctx, r); err != nil {
		return err
	}
	if err := r.files.ForgetStart(); err != nil {
		return err
	}
	return a.change(r, func(rec *record) {
		rec.Deaths++
		rec.BootID, rec.GuestID, rec.GuestIP, rec.WorkID = "", "", netip.Addr{}, ""
		// the next guest starts a new count; the overlay's folder stays
		rec.TrafficRead = withFlow(rec.TrafficRead, firewall.Traffic{})
	})
}

func (a *Agent) startOverlay(ctx context.Context, l *lease, r *run, v view) error {
	if !a.admitted(r, v.guest, v.spec().Egress) { // after a restart of the agent
		if err := a.admit(ctx, r, v.guest, v.spec().Egress); err != nil {
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
	// On the disk first: a run whose overlay counts as started is not asked again where it is.
	if err := a.change(r, func(rec *record) { rec.WGKey, rec.Endpoints = h.PublicKey(), h.Endpoints() }); err != nil {
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
	return nil
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

// sendRelays sends the cluster's relays to the overlay and returns the access that it sent. Paths through relays that
// the overlay had before stay open.
func sendRelays(ctx context.Context, h *overlay.Handle, n agentapi.Network) (relayAccess, error) {
	if n.RelayToken == "" {
		return relayAccess{}, nil
	}
	return relayAccess{n.Relays, n.RelayToken}, h.SetRelays(ctx, n.Relays, n.RelayToken)
}

func (a *Agent) setRelays(ctx context.Context, r *run, v view) error {
	a.mu.Lock()
	h := r.overlay
	a.mu.Unlock()
	relays, err := sendRelays(ctx, h, v.spec().Network)
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
	if err := a.change(r, func(rec *record) { rec.Spec = withoutSecrets(v.spec()) }); err != nil {
		return err // they are set again: an agent without a server has only what is written down
	}
	a.mu.Lock()
	r.peers = peers
	a.mu.Unlock()
	return nil
}

// preflight waits for the figures, or until the worker is wanted for something else: an overlay that dies meanwhile is
// started again under the measurement, which goes on in the guest. Meanwhile the workload is brought to its barrier:
// that takes the runtime as long as the measurement takes the network, and nothing of the renter's runs before both are
// done.
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
	r.withdrawn = false
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

// withdraw ends a measurement that waits for an absent rank: its result would show nothing about the network. All ranks
// measure again, with their full time, once that rank has reported its address.
func (a *Agent) withdraw(ctx context.Context, r *run, v view) error {
	if r.withdrawn || v.spec().Nodes <= 1 || v.begun() {
		return nil
	}
	if err := guest.Dial(r.files.HoldSocket).Withdraw(ctx); err != nil {
		// it is just coming up, or has died
		a.log.Debug("withdraw the guest's measurement; it is retried", "lease", r.ref, "err", err)
		return nil
	}
	r.withdrawn = true
	if p := v.rec.Preflight; p != nil && !p.OK {
		return a.change(r, func(rec *record) { rec.Preflight = nil })
	}
	return nil
}

// standBy has the guest of a rank that was measured measure again with one that came back.
func (a *Agent) standBy(ctx context.Context, r *run, v view) error {
	if err := guest.Dial(r.files.HoldSocket).StandBy(ctx, guest.PreflightOf(v.spec())); err != nil {
		return err
	}
	r.withdrawn = false
	return nil
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
	set, err := a.giveCores(r, *v.want)
	if err != nil {
		return err
	}
	c, err := a.cfg.Engine.EnsureWorkload(ctx, container.WorkloadSpec{
		Lease:   *v.want,
		Guest:   v.guest.ID,
		ImageID: v.rec.ImageID,
		Files:   r.files,
		Cores:   set,
		Scratch: scratchOf(v),
		Devices: a.cfg.GPUs.DeviceNodes(v.want.GPUs...),
	})
	if err != nil {
		if errors.As(err, new(container.Refusal)) { // after anything else, Docker may be making it yet
			a.freeCores(ctx, r)
		}
		return err
	}
	return a.change(r, func(rec *record) {
		rec.WorkID = c.ID
		holdCores(rec, c)
	})
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
