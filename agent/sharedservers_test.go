//go:build shared

package agent_test

import (
	"testing"

	"github.com/musterhq/muster/internal/testing/sharedtest"
)

// What holds for Docker's containers on a shared ext4 holds on CephFS and Gluster, with a client on each of two hosts.

func TestContainersOnCephFS(t *testing.T) { containersOn(t, sharedtest.Ceph(t)) }

func TestContainersOnGluster(t *testing.T) { containersOn(t, sharedtest.Gluster(t)) }

func containersOn(t *testing.T, s *sharedtest.Server) {
	one, other := s.Mount(t, "lab"), s.Mount(t, "lab")
	t.Run("the folder is its organisation's", func(t *testing.T) { sharedByOrganisation(t, one, other) })
	t.Run("the folder outlives the agent", func(t *testing.T) { sharedOutlivesTheAgent(t, newSharingHost(t, one)) })
	t.Run("the folder has a quota", func(t *testing.T) { sharedWithQuota(t, newSharingHost(t, other)) })
	t.Run("the folder is erased", func(t *testing.T) { sharedIsErased(t, newSharingHost(t, one)) })
}
