package agent

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/selfapi"
	"github.com/musterhq/muster/agent/storage/snapd"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// selves are the sockets on which workloads with volumes request checkpoints.
type selves struct {
	runs    *runs
	volumes *snapd.Client
	log     *slog.Logger

	mu        sync.Mutex
	listeners map[agentapi.LeaseRef]net.Listener
}

// serve opens the socket of a run's workload unless it is open. Without it checkpoints fail and everything else
// works, so that an error ends nothing.
func (s *selves) serve(r *run, v view) {
	if len(v.spec().Mounts) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners[r.ref] != nil {
		return
	}
	l, err := unixsock.Listen(filepath.Join(r.files.Node, selfapi.Socket), 0o666) // the image's user may be any user
	if err != nil {
		s.log.Warn("a workload cannot request checkpoints", "lease", r.ref, "err", err)
		return
	}
	s.listeners[r.ref] = l
	node := selfapi.Node{
		Ref: r.ref,
		Mounts: func() []agentapi.Mount {
			s.runs.mu.Lock()
			defer s.runs.mu.Unlock()
			return slices.Clone(r.rec.Spec.Mounts)
		},
		Checkpoint: func(ctx context.Context, c checkpoint.Request) (checkpoint.State, error) {
			return s.volumes.Checkpoint(ctx, c)
		},
		Last: func(volume string) (snapshot, problem string) {
			st := s.volumes.State(r.ref, volume)
			return st.Snapshot, st.Problem
		},
		Log: s.log,
	}
	go func() {
		if err := node.Serve(l); err != nil {
			s.log.Warn("a workload can no longer request checkpoints", "lease", r.ref, "err", err)
		}
	}()
}

// end closes the socket of a run's workload.
func (s *selves) end(ref agentapi.LeaseRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.listeners[ref]; l != nil {
		l.Close()
		delete(s.listeners, ref)
	}
}

// close closes the sockets of all workloads. The next agent process opens them again.
func (s *selves) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, l := range s.listeners {
		l.Close()
		delete(s.listeners, ref)
	}
}
