package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// script starts a cluster by hand: the steps of an agent, one after the other on each host, the hosts at once.
type script struct {
	stack *stack
	ranks []*rank
}

// rank is one host of the script.
type rank struct {
	dir      string
	bin      string
	host     id.Host
	engine   *container.Engine
	images   *image.Puller
	firewall firewall.Keeper
	stop     context.CancelFunc
	served   chan struct{}
	spec     agentapi.LeaseSpec
	files    leasefiles.Layout
	handle   *overlay.Handle
	imageID  string
	guest    container.Container
}

func newScript(s *stack, n int) (*script, error) {
	out := &script{stack: s}
	for i := range n {
		r, err := newRank(s, filepath.Join(s.dir, fmt.Sprintf("by-hand-%d", i)))
		if err != nil {
			return nil, errors.Join(err, out.close())
		}
		out.ranks = append(out.ranks, r)
	}
	return out, nil
}

func newRank(s *stack, dir string) (*rank, error) {
	r := &rank{dir: dir, bin: s.bin, host: id.New[id.Host](), served: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	var err error
	r.engine, err = container.New(container.Config{
		Host:        r.host,
		GuestBinary: filepath.Join(s.bin, "muster-guest"),
		Simulated:   true,
		Overlay:     netip.MustParsePrefix("10.77.0.0/20"),
		Log:         log,
	})
	if err != nil {
		return nil, err
	}
	registry, _, _ := strings.Cut(s.info.DemoImage, "/")
	r.images, err = image.New(image.Config{
		Daemon: r.engine,
		Dir:    filepath.Join(dir, "images"),
		Prefix: "muster-" + container.Host8(r.host),
		Allow:  []string{registry},
		Free:   func() (int64, error) { return 1 << 40, nil },
		Now:    time.Now,
		Log:    log,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { _ = r.images.Serve(ctx); close(r.served) }()
	return r, nil
}

// close removes what the script made on the machine.
func (s *script) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var errs []error
	for _, r := range s.ranks {
		errs = append(errs, r.clean(ctx), r.engine.RemoveNetwork(ctx), firewall.Remove(ctx, container.Host8(r.host)))
		if _, err := r.images.GC(ctx, nil, 0, 1<<40); err != nil {
			errs = append(errs, err)
		}
		r.stop()
		<-r.served
		errs = append(errs, r.engine.Close())
	}
	return errors.Join(errs...)
}

// run starts a cluster, says how long it took until the last rank had started, and takes it down again.
func (s *script) run(ctx context.Context) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cluster := id.New[id.Cluster]().String()
	for i, r := range s.ranks {
		r.spec = agentapi.LeaseSpec{
			LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1},
			Cluster:  cluster,
			Node:     id.New[id.Node]().String(),
			Rank:     i,
			Nodes:    len(s.ranks),
			Image:    s.stack.info.DemoImage,
			Command:  []string{"train"},
			Env:      map[string]string{"TRAIN_STEPS": "100000"},
			GPUs:     []string{"GPU-0"},
			CPUs:     0.25,
			RAMMB:    512,
			DiskGB:   1,
			Egress:   "full",
			GraceS:   1,
			Network:  agentapi.Network{CIDR: "10.77.0.0/20", Address: fmt.Sprintf("10.77.0.%d", i+1), MTU: overlay.DefaultMTU},
		}
		for j := range s.ranks {
			if j != i {
				r.spec.Network.Peers = append(r.spec.Network.Peers, agentapi.Peer{Rank: j, Address: fmt.Sprintf("10.77.0.%d", j+1)})
			}
		}
	}
	began := time.Now()
	for _, step := range []func(*rank, context.Context) error{(*rank).join, s.meet, (*rank).ready, (*rank).start} {
		if err = s.each(ctx, step); err != nil {
			break
		}
	}
	took = time.Since(began)
	return took, errors.Join(err, s.each(ctx, (*rank).clean))
}

// each does a step on all ranks at once.
func (s *script) each(ctx context.Context, step func(*rank, context.Context) error) error {
	errs := make([]error, len(s.ranks))
	var wg sync.WaitGroup
	for i, r := range s.ranks {
		wg.Go(func() { errs[i] = step(r, ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// join brings up guest and overlay.
func (r *rank) join(ctx context.Context) error {
	img, err := r.images.Pull(ctx, image.Request{Image: r.spec.Image, MaxBytes: 1 << 40}, func(agentapi.Progress) {})
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	r.imageID = img.ID
	r.files = leasefiles.At(filepath.Join(r.dir, "leases", r.spec.Lease))
	if err := r.files.Write(r.spec, []netip.Addr{netip.MustParseAddr("192.0.2.53")}); err != nil {
		return err
	}
	rules := firewall.Config{Host8: container.Host8(r.host), Leases: map[netip.Addr]firewall.Egress{}}
	if err := r.firewall.Ensure(ctx, rules); err != nil {
		return fmt.Errorf("firewall: %w", err)
	}
	if r.guest, err = r.engine.EnsureGuest(ctx, r.spec, r.files); err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	rules.Leases[r.guest.IP] = firewall.EgressFull
	if err := r.firewall.Ensure(ctx, rules); err != nil {
		return fmt.Errorf("firewall: %w", err)
	}
	n := r.spec.Network
	r.handle, err = overlay.Ensure(ctx, overlay.Config{
		Dir:       r.files.Dir,
		Ref:       r.spec.LeaseRef,
		NetNS:     r.guest.NetNS(),
		Address:   n.Address,
		CIDR:      n.CIDR,
		MTU:       n.MTU,
		Advertise: []string{"127.0.0.1"},
		Command:   []string{filepath.Join(r.bin, "muster-agent"), "overlay"},
	})
	return err
}

// meet gives a rank the keys of the others.
func (s *script) meet(r *rank, ctx context.Context) error {
	for i := range r.spec.Network.Peers {
		p := &r.spec.Network.Peers[i]
		other := s.ranks[p.Rank]
		p.Key, p.Endpoints = other.handle.PublicKey(), other.handle.Endpoints()
	}
	return r.handle.SetPeers(ctx, r.spec.Network.Peers)
}

// ready measures the overlay and brings the workload to its barrier.
func (r *rank) ready(ctx context.Context) error {
	p, err := guest.Dial(r.files.HoldSocket).Preflight(ctx, guest.PreflightOf(r.spec))
	if err != nil || !p.OK {
		return fmt.Errorf("preflight: %s %w", p.Detail, err)
	}
	if _, err := r.engine.EnsureWorkload(ctx, container.WorkloadSpec{
		Lease:   r.spec,
		Guest:   r.guest.ID,
		ImageID: r.imageID,
		Files:   r.files,
	}); err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	return r.until(ctx, guest.StateAtBarrier)
}

// start releases the barrier and waits until the command runs.
func (r *rank) start(ctx context.Context) error {
	if err := r.files.OpenBarrier(r.spec.LeaseRef); err != nil {
		return err
	}
	return r.until(ctx, guest.StateStarted)
}

func (r *rank) until(ctx context.Context, state guest.State) error {
	var w guest.Workload
	var err error
	for w.State != state {
		if w, err = guest.Dial(r.files.HoldSocket).Next(ctx, w.State); err != nil {
			return fmt.Errorf("wait for %s: %w", state, err)
		}
		if w.State == guest.StateRefused {
			return fmt.Errorf("refused: %s", w.Detail)
		}
	}
	return nil
}

// clean takes the lease down.
func (r *rank) clean(ctx context.Context) error {
	if r.spec.Lease == "" {
		return nil
	}
	err := errors.Join(r.engine.Remove(ctx, r.spec.LeaseRef, container.Work), overlay.Stop(ctx, r.files.Dir),
		r.engine.Remove(ctx, r.spec.LeaseRef, container.Guest))
	r.spec.Lease = ""
	return err
}
