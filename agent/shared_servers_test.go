//go:build shared

package agent_test

import (
	"testing"

	"github.com/musterhq/muster/internal/testing/sharedtest"
)

// Containers of two hosts use a file system of real servers, which each host mounts with a client of its own.
func TestContainersOnSharedServers(t *testing.T) {
	for kind, start := range map[string]func(*testing.T) *sharedtest.Server{
		"CephFS": sharedtest.Ceph, "GlusterFS": sharedtest.Gluster,
	} {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			one, other := s.Mount(t, "lab"), s.Mount(t, "lab")
			sharedByOrganisation(t, one, other)
			sharedWithQuota(t, newSharingHost(t, other))
			endsWhileServersHang(t, s, newSharingHost(t, one))
		})
	}
}

// endsWhileServersHang checks that servers that do not answer keep the agent from nothing else: it reports, and other
// leases run and end.
func endsWhileServersHang(t *testing.T, s *sharedtest.Server, h *sharingHost) {
	writes := h.launch(h.sharing("shd_hang", "rw", "fill", "/shared", "close"))
	h.await(writes.LeaseRef, "running", running)
	s.Hang(t)
	resumed := false
	defer func() {
		if !resumed {
			s.Resume(t)
		}
	}()
	plain := h.spec("/job", "run")
	h.want(writes, plain)
	h.await(plain.LeaseRef, "running", running)
	h.want(writes)
	h.await(plain.LeaseRef, "gone", gone)
	h.want()
	s.Resume(t)
	resumed = true
	h.await(writes.LeaseRef, "gone", gone)
}
