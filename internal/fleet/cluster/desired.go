package cluster

import (
	"context"
	"encoding/json"
	"fmt"

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
