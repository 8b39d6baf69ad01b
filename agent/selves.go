package agent

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/selfapi"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// selves are the sockets on which workloads with volumes request checkpoints.
type selves struct {
	mu        sync.Mutex
	listeners map[agentapi.LeaseRef]net.Listener
}

// serveSelf opens the socket of a run's workload unless it is open. Without it checkpoints fail and everything else
// works, so that an error ends nothing.
func (a *Agent) serveSelf(r *run, v view) {
	if len(v.spec().Mounts) == 0 {
		return
	}
	a.selves.mu.Lock()
	defer a.selves.mu.Unlock()
	if a.selves.listeners[r.ref] != nil {
		return
	}
	l, err := unixsock.Listen(filepath.Join(r.files.Node, selfapi.Socket), 0o666) // the image's user may be any user
	if err != nil {
		a.log.Warn("a workload cannot request checkpoints", "lease", r.ref, "err", err)
		return
	}
	if a.selves.listeners == nil {
		a.selves.listeners = map[agentapi.LeaseRef]net.Listener{}
	}
	a.selves.listeners[r.ref] = l
	node := selfapi.Node{
		Ref: r.ref,
		Mounts: func() []agentapi.Mount {
			a.mu.Lock()
			defer a.mu.Unlock()
			return slices.Clone(r.rec.Spec.Mounts)
		},
		Checkpoint: func(ctx context.Context, c checkpoint.Request) (checkpoint.State, error) {
			return a.volumes.Checkpoint(ctx, c)
		},
		Last: func(volume string) (snapshot, problem string) {
			st := a.volumes.State(r.ref, volume)
			return st.Snapshot, st.Problem
		},
		Log: a.log,
	}
	context.AfterFunc(a.ctx, func() { a.endSelf(r.ref) })
	go func() {
		if err := node.Serve(l); err != nil {
			a.log.Warn("a workload can no longer request checkpoints", "lease", r.ref, "err", err)
		}
	}()
}

// endSelf closes the socket of a run's workload.
func (a *Agent) endSelf(ref agentapi.LeaseRef) {
	a.selves.mu.Lock()
	defer a.selves.mu.Unlock()
	if l := a.selves.listeners[ref]; l != nil {
		l.Close()
		delete(a.selves.listeners, ref)
	}
}
