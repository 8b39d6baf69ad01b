package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/agent/storage/lazy"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// laziesOf mounts the volumes that a run reads on demand, and returns how they are. made: their caches are there.
func (a *Agent) laziesOf(v view, r *run, made bool) (out mountView) {
	for _, m := range v.spec().Lazy {
		if made && v.rec.Outcome == nil && (v.rec.BootID == "" || v.rec.BootID == v.boot) {
			a.lazies.Want(lazy.Wanted{
				Ref: r.ref, Mount: m, Cache: scratch.Data(v.rec.Volumes[m.Volume]), PID: workPID(v),
			})
		}
		st := a.lazies.State(r.ref, m.Volume)
		out.add("volume "+m.Name, st.Ready, st.Refused, st.Problem, st.ByHost)
	}
	return out
}

// lazyBinds returns what a workload's container mounts of the volumes that it reads on demand.
func (a *Agent) lazyBinds(ref agentapi.LeaseRef, v view) (out []container.Bind) {
	for _, m := range v.spec().Lazy {
		out = append(out, container.Bind{Source: a.lazies.Point(ref, m.Volume), Target: m.Path, ReadOnly: true})
	}
	return out
}

// lazyDir is where the volumes of a host are mounted that are read on demand. It is not in the state folder, which is
// removed recursively.
func lazyDir(host id.Host) string {
	return filepath.Join("/run/muster-agent", container.Host8(host), "volumes")
}

// newLazies returns the host's volumes that are read on demand. Their processes reach the store as the process for
// volumes does: with the host's proxy and certificates.
func (a *Agent) newLazies() *lazy.Mounts {
	var env []string
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			env = append(env, e)
		}
	}
	return lazy.New(lazy.Config{
		Dir: lazyDir(a.cfg.Host), Program: a.cfg.MountProgram, Server: a.sendVolume, Env: env,
		Confine: a.confine, Log: a.log, Changed: a.kickAll,
	})
}

// sweepLazies ends mounts that belong to no known run. It is called once.
func (a *Agent) sweepLazies(ctx context.Context) {
	err := a.lazies.Sweep(ctx, func(ref agentapi.LeaseRef) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		r := a.find(ref)
		return r != nil && !r.rec.Gone
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		a.log.Warn("volumes of former leases are left mounted", "err", err)
	}
}
