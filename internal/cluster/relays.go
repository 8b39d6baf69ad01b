package cluster

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// relaysPerCluster is how many relays a cluster is given: one may fail.
const relaysPerCluster = 2

// relayTokenLife is how long a rank's token opens a relay after its cluster was rented. Tokens of ended leases are worth
// nothing to others: a relay carries between ranks of one cluster only.
const relayTokenLife = 365 * 24 * time.Hour

// relaysOf are a cluster's relays out of all: each cluster has an order of its own, so that load spreads, and a relay
// that is added or taken away moves as few clusters as can be.
func relaysOf(all []string, cl id.Cluster) []string {
	weight := func(relay string) []byte {
		u := cl.UUID()
		h := sha256.Sum256(append(u[:], relay...))
		return h[:]
	}
	out := slices.Clone(all)
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(bytes.Compare(weight(a), weight(b)), cmp.Compare(a, b)) })
	return out[:min(len(out), relaysPerCluster)]
}

// relayToken is the same at every call for one start of a node.
func (c *Clusters) relayToken(r dbq.LeaseFactsRow) string {
	return agentapi.NewRelayToken(c.cfg.RelaySecret, agentapi.RelayClaims{
		Cluster: [16]byte(r.Cluster.ID.UUID()), Rank: uint16(r.Node.Rank), Epoch: uint32(r.LeaseEpoch), Expires: r.Cluster.CreatedAt.Add(relayTokenLife),
	}).Text()
}
