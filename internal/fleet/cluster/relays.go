package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// relaysPerCluster is how many relays a cluster is given: one may fail.
const relaysPerCluster = 2

// relayMargin is for how long past its lease's authorised time a rank's token opens a relay. It is all the room there
// is for clocks, for relays are strict: one may be up to this much ahead of the control plane's, less what a workload
// takes to stop, before a lease that may still run loses its relay.
const relayMargin = 5 * time.Minute

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

// relayToken opens the cluster's relays for one run of a rank, for as long as it may run or take to start. It is the
// same at every call until that changes.
func (c *Clusters) relayToken(r dbq.RelayedLeasesRow) string {
	until := latest(deref(r.RunUntil), deref(r.StartDeadline))
	if until.IsZero() { // a rank that goes on elsewhere, before money was held for its new lease
		until = time.Now().Truncate(relayMargin).Add(relayMargin)
	}
	return agentapi.NewRelayToken(c.cfg.RelaySecret, agentapi.RelayClaims{
		Cluster: [16]byte(r.ClusterID.UUID()), Rank: uint16(r.Rank), Epoch: uint32(r.Epoch), Expires: until.Add(relayMargin),
	}).Text()
}

// RenewRelays puts into a host's extensions what opens the relays for as long as they say. A host that hears nothing
// more keeps its relays for as long as its leases may run.
func (c *Clusters) RenewRelays(ctx context.Context, tx *db.Tx, host id.Host,
	extensions []agentapi.LeaseExtension) error {
	if len(c.cfg.Relays) == 0 || len(extensions) == 0 {
		return nil
	}
	rows, err := tx.Q.RelayedLeases(ctx, host)
	if err != nil {
		return fmt.Errorf("relays of %s: %w", host, err)
	}
	for _, r := range rows {
		ref := agentapi.LeaseRef{Lease: r.ID.String(), Epoch: int(r.Epoch)}
		if i := slices.IndexFunc(extensions, func(x agentapi.LeaseExtension) bool { return x.LeaseRef == ref }); i >= 0 {
			extensions[i].RelayToken = c.relayToken(r)
		}
	}
	return nil
}
