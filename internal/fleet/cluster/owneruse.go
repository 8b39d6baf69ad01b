package cluster

import (
	"fmt"

	"github.com/musterhq/muster/internal/db/dbq"
)

// addOwnerUseEvent writes into the timeline, once per lease, that a host says its owner's programs use the node's GPUs.
// It is word for word the host's: nothing is decided by it, and nobody is held to have said it who did not.
func (x *lockedCluster) addOwnerUseEvent(n *node, mb int64) {
	rank := n.Rank
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "owner_uses_gpu",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: programs of its host's owner use its GPU too", rank),
		Detail: fmt.Sprintf("Its host says that they took %d MiB of its memory. The node goes on and is charged as "+
			"before, but may be slower or find less memory. If that is in your way, release the cluster and rent elsewhere.",
			mb),
		Data: []byte("{}"),
	})
}
