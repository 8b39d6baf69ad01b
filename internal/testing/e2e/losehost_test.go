//go:build long || torch

package e2e

import (
	"syscall"
	"testing"

	"github.com/musterhq/muster/client"
)

// loseHost kills a rank's agent and containers at once, and returns the cluster when another host has taken the rank.
func (r *renter) loseHost(t *testing.T, p *platform, c client.Cluster, rank int) client.Cluster {
	t.Helper()
	first := c.Nodes[rank]
	n := p.node(t, c, rank)
	n.signalAgent(syscall.SIGSTOP) // nothing of it is between the deaths of its containers and its own
	n.killContainer("guest")
	n.killContainer("work")
	n.signalAgent(syscall.SIGKILL)
	eventually(t, "another host runs the rank", func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s: %s\n%s", now.State, now.Detail, r.timeline(t, c))
		}
		c = now
		return now.State == client.Running && now.Epoch >= 2 && now.Nodes[rank].HostID != first.HostID
	})
	return c
}
