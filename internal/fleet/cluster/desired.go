package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

const (
	graceSeconds = 10
	mtu          = 1280
)

// Desired is everything a host should run, without the control epoch, which the host link adds. The renters' secrets
// are opened here and nowhere else.
func (c *Clusters) Desired(ctx context.Context, tx *db.Tx, hostID id.Host) (agentapi.Desired, error) {
	d := agentapi.Desired{Leases: []agentapi.LeaseSpec{}}
	// The revision is read first: should a change commit in between, the host gets newer leases under an older
	// number, and the wake of that change brings the number after it.
	var rows []dbq.LeaseFactsRow
	var peers []dbq.PeersOfHostRow
	var names []dbq.LeasedGPUsRow
	b := &pgx.Batch{}
	db.Read(b, &d.Revision, (*dbq.Queries).HostRevision, hostID)
	db.Read(b, &rows, (*dbq.Queries).LeaseFacts, hostID)
	db.Read(b, &peers, (*dbq.Queries).PeersOfHost, hostID)
	db.Read(b, &names, (*dbq.Queries).LeasedGPUs, hostID)
	if err := tx.Send(ctx, b); err != nil {
		return d, fmt.Errorf("what %s should run: %w", hostID, err)
	}
	device := map[id.GPU]string{}
	for _, g := range names {
		device[g.ID] = g.UUID
	}
	for _, r := range rows {
		s, err := c.leaseSpec(r, peers, device)
		if err != nil {
			return d, err
		}
		d.Leases = append(d.Leases, s)
	}
	return d, nil
}

func (c *Clusters) leaseSpec(r dbq.LeaseFactsRow, peers []dbq.PeersOfHostRow,
	device map[id.GPU]string) (agentapi.LeaseSpec, error) {
	cl := r.Cluster
	var spec market.Spec
	if err := json.Unmarshal(cl.Spec, &spec); err != nil {
		return agentapi.LeaseSpec{}, fmt.Errorf("read the spec of %s: %w", cl.ID, err)
	}
	secrets, err := c.secrets(cl)
	if err != nil {
		return agentapi.LeaseSpec{}, err
	}
	s := agentapi.LeaseSpec{
		LeaseRef:    agentapi.LeaseRef{Lease: r.Node.LeaseID.String(), Epoch: int(r.LeaseEpoch)},
		Cluster:     cl.ID.String(),
		Node:        r.Node.ID.String(),
		Rank:        int(r.Node.Rank),
		Nodes:       int(cl.NodeCount),
		Go:          cl.GoAt != nil,
		Image:       cl.ImageRef,
		Digest:      cl.ImageDigest,
		Command:     spec.Command,
		Env:         secrets.Env,
		CPUs:        r.CPUCores,
		RAMMB:       r.RAMMb,
		DiskGB:      r.DiskGb,
		DiskLimited: spec.DiskLimited,
		Runtime:     spec.Runtime,
		ScratchGB:   spec.ScratchGB,
		Egress:      spec.Egress,
		GraceS:      graceSeconds,
		GPUs:        []string{},
		Network: agentapi.Network{
			CIDR:    overlay.String(),
			Address: r.Node.Address,
			MTU:     mtu,
			MinGbps: spec.Network.MinGbps,
			Peers:   []agentapi.Peer{},
		},
	}
	if a := secrets.RegistryAuth; a != nil {
		s.RegistryAuth = &agentapi.RegistryAuth{Username: a.Username, Password: a.Password}
	}
	if cl.GoAt != nil && r.LeaseRunUntil != nil {
		s.RunUntilMS = r.LeaseRunUntil.UnixMilli()
	}
	if len(c.cfg.Relays) > 0 && cl.NodeCount > 1 {
		s.Network.Relays = relaysOf(c.cfg.Relays, cl.ID)
		s.Network.RelayToken = c.relayToken(dbq.RelayedLeasesRow{ID: r.Node.LeaseID, Epoch: r.LeaseEpoch, Rank: r.Node.Rank,
			ClusterID: cl.ID, RunUntil: r.LeaseRunUntil, StartDeadline: cl.StartDeadline})
	}
	for _, g := range r.GPUIds {
		s.GPUs = append(s.GPUs, device[g])
	}
	for _, p := range spec.Ports {
		s.Ports = append(s.Ports, agentapi.Port{Port: p.Port, Protocol: p.Protocol})
	}
	for _, p := range peers {
		if p.ClusterID == cl.ID && p.Rank != r.Node.Rank {
			s.Network.Peers = append(s.Network.Peers, agentapi.Peer{
				Rank:      int(p.Rank),
				Address:   p.Address,
				Key:       p.WgKey,
				Endpoints: p.Endpoints,
			})
		}
	}
	return s, nil
}

// secrets opens a cluster's environment and registry credentials.
func (c *Clusters) secrets(cl dbq.Cluster) (market.Secrets, error) {
	var s market.Secrets
	if len(cl.Secrets) == 0 {
		return s, nil
	}
	plain, err := c.cfg.Box.Open(cl.Secrets, belongs(cl.ID))
	if err != nil {
		return s, fmt.Errorf("secrets of %s: %w", cl.ID, err)
	}
	return s, json.Unmarshal(plain, &s)
}

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
