//go:build disk

package redteam

import (
	"testing"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// On a host whose Docker limits the size of containers, a node that fills its disk gets what it rented and no more, and
// its neighbour can still write.
func TestADiskFillerIsHeld(t *testing.T) {
	b := newBoxOn(t, func(h *testnet.Host) *testnet.Docker { return h.DockerOnBtrfs(4 << 10) })
	b.build()
	if facts := b.engine.Facts(t.Context()); !facts.DiskLimited || facts.StorageDriver != "btrfs" {
		t.Fatalf("a host that holds disks to a size is not listed as one: %+v", facts)
	}
	b.run(firewall.EgressOff, 128, "disk", "1000").held(t, 1)
	b.run(firewall.EgressOff, 128, "disk", "1000").held(t, 1) // which has as much as the first
	if state := b.docker.Do("run", "--rm", "--network", "none", b.image, "/hostile", "none"); state != "finished" {
		t.Errorf("after them another container cannot write: %s", state)
	}
}
