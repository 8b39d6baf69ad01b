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
func (ms *mounts) laziesOf(v view, r *run, made bool) (out mountView) {
	for _, m := range v.spec().Lazy {
		if made && v.rec.Outcome == nil && (v.rec.BootID == "" || v.rec.BootID == v.boot) {
			ms.lazies.Want(lazy.Wanted{
				Ref: r.ref, Mount: m, Cache: scratch.Data(v.rec.Volumes[m.Volume]), PID: workPID(v),
			})
		}
		st := ms.lazies.State(r.ref, m.Volume)
		out.add("volume "+m.Name, st.Ready, st.Refused, st.Problem, st.ByHost)
	}
	return out
}

// lazyBinds returns what a workload's container mounts of the volumes that it reads on demand.
func (ms *mounts) lazyBinds(ref agentapi.LeaseRef, v view) (out []container.Bind) {
	for _, m := range v.spec().Lazy {
		out = append(out, container.Bind{Source: ms.lazies.Point(ref, m.Volume), Target: m.Path, ReadOnly: true})
	}
	return out
}

// lazyDir is where the volumes of a host are mounted that are read on demand. It is not in the state folder, which is
// removed recursively.
func lazyDir(host id.Host) string {
	return filepath.Join("/run/muster-agent", container.Host8(host), "volumes")
}

// sweepLazies ends mounts that belong to no known run. It is called once.
func (ms *mounts) sweepLazies(ctx context.Context) {
	err := ms.lazies.Sweep(ctx, ms.runs.here)
	if err != nil && !errors.Is(err, context.Canceled) {
		ms.log.Warn("volumes of former leases are left mounted", "err", err)
	}
}

// storeEnv is the environment with which a process reaches the store of volumes as the process for volumes does: with
// the host's proxy and certificates.
func storeEnv() (env []string) {
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			env = append(env, e)
		}
	}
	return env
}
