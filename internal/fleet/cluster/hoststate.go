package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

const mtu = 1280

// HostState is what a host needs to know after its report.
type HostState struct {
	Revision     int64 // of what it should run
	ControlEpoch int64
	// Extensions say until when its live leases may run, with the tokens of their relays.
	Extensions []agentapi.LeaseExtension
	// LogsStored are kept logs of the report that are stored here: the host may delete them.
	LogsStored []agentapi.LeaseRef
	// Desired is what the host should run. It is nil if the host knows it already, or has seen a newer revision than the
	// database holds.
	Desired *agentapi.Desired
}

// HostState reads what a host needs to know after the report s.
func (hs *Hosts) HostState(ctx context.Context, hostID id.Host, s agentapi.Sync) (HostState, error) {
	var h HostState
	var at dbq.HostRevisionRow
	var live []dbq.LiveLeasesRow
	var logs []dbq.StoredLogsRow
	kept, leases := keptLogs(s)
	b := &pgx.Batch{}
	db.Read(b, &at, (*dbq.Queries).HostRevision, hostID)
	db.Read(b, &live, (*dbq.Queries).LiveLeases, hostID)
	if len(leases) > 0 {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
			logs, err = q.StoredLogs(ctx, hostID, id.UUIDs(leases...))
			return err
		})
	}
	if err := db.Send(ctx, hs.db.Q, b); err != nil {
		return HostState{}, fmt.Errorf("what %s has to know: %w", hostID, err)
	}
	h.Revision, h.ControlEpoch = at.Revision, at.ControlEpoch
	h.Extensions = hs.extensions(live)
	for _, l := range logs {
		if ref := (agentapi.LeaseRef{Lease: l.ID.String(), Epoch: int(l.Epoch)}); kept[ref] {
			h.LogsStored = append(h.LogsStored, ref)
		}
	}
	var err error
	switch {
	case s.ControlEpoch > h.ControlEpoch, s.ControlEpoch == h.ControlEpoch && s.Revision > h.Revision:
		// The database is older than what it has sent to this host before: a restore lost commits. The host keeps what it
		// runs until an operator confirms the database with a higher control epoch.
		hs.log.Error("a host has seen a newer desired state than the database holds",
			"host", hostID, "seen", s.Revision, "revision", h.Revision, "seen_epoch", s.ControlEpoch, "epoch", h.ControlEpoch)
	case s.ControlEpoch < h.ControlEpoch || s.Revision < h.Revision:
		h.Desired, err = hs.desired(ctx, hostID)
		if h.Desired == nil { // the host keeps what it runs, and need not ask again at once
			h.Revision = min(h.Revision, s.Revision)
		}
	}
	return h, err
}

// keptLogs returns the runs whose logs wait on the host, and their leases.
func keptLogs(s agentapi.Sync) (kept map[agentapi.LeaseRef]bool, leases []id.Lease) {
	kept = map[agentapi.LeaseRef]bool{}
	for _, l := range s.Leases {
		if v, err := id.Parse[id.Lease](l.Lease); err == nil && l.LogKept {
			kept[l.LeaseRef], leases = true, append(leases, v)
		}
	}
	return kept, leases
}

// WakeState returns what a host should run, to be sent with a wake. It is nil if the host's agent does not accept it
// there.
func (hs *Hosts) WakeState(ctx context.Context, hostID id.Host) (*agentapi.Desired, error) {
	var agent dbq.HostAgentOrderRow
	var f desiredFacts
	b := &pgx.Batch{}
	db.Read(b, &agent, (*dbq.Queries).HostAgentOrder, hostID)
	f.queueRead(b, hostID)
	if err := db.Send(ctx, hs.db.Q, b); err != nil {
		return nil, fmt.Errorf("what %s should run: %w", hostID, err)
	}
	if !slices.Contains(agent.Capabilities, agentapi.CapWakeState) {
		return nil, nil
	}
	d, left, err := hs.desiredOf(f)
	if len(left) > 0 { // the host's next report has them refused
		return nil, err
	}
	return d, err
}

// desired returns everything that a host should run; nil if that is larger than the link carries. The starts of leases
// that the host cannot get are ended.
func (hs *Hosts) desired(ctx context.Context, hostID id.Host) (*agentapi.Desired, error) {
	var f desiredFacts
	b := &pgx.Batch{}
	f.queueRead(b, hostID)
	if err := db.Send(ctx, hs.db.Q, b); err != nil {
		return nil, fmt.Errorf("what %s should run: %w", hostID, err)
	}
	d, left, err := hs.desiredOf(f)
	if err != nil {
		return nil, err
	}
	if err := hs.refuse(ctx, left); err != nil { // the others' host does not wait for it: its next report tries again
		hs.log.Error("leases that a host cannot get were not ended", "host", hostID, "err", err)
	}
	if d == nil {
		hs.log.Error("what a host should run is larger than the link carries", "host", hostID, "limit", hs.cfg.MaxState)
	}
	return d, nil
}

// desiredFacts is what the database holds of what a host should run.
type desiredFacts struct {
	at      dbq.HostRevisionRow
	rows    []dbq.LeaseFactsRow
	peers   []dbq.PeersOfHostRow
	names   []dbq.LeasedGPUsRow
	mounts  []dbq.MountsOfHostRow
	buckets []dbq.BucketsOfHostRow
	shared  []dbq.SharedOfHostRow
	erases  []dbq.SharedErasesOfHostRow
	ending  []dbq.EndingMountsOfHostRow

	requalify []agentapi.GPUOrder
}

// queueRead queues the reads. The revision is read first: if a change commits in between, the host gets newer leases
// under an older number, and the wake of that change brings the next number.
func (f *desiredFacts) queueRead(b *pgx.Batch, hostID id.Host) {
	db.Read(b, &f.at, (*dbq.Queries).HostRevision, hostID)
	db.Read(b, &f.rows, (*dbq.Queries).LeaseFacts, hostID)
	db.Read(b, &f.peers, (*dbq.Queries).PeersOfHost, hostID)
	db.Read(b, &f.names, (*dbq.Queries).LeasedGPUs, hostID)
	host.QueueRequalifies(b, hostID, &f.requalify)
	db.Read(b, &f.mounts, (*dbq.Queries).MountsOfHost, hostID)
	db.Read(b, &f.buckets, (*dbq.Queries).BucketsOfHost, hostID)
	db.Read(b, &f.shared, (*dbq.Queries).SharedOfHost, hostID)
	db.Read(b, &f.erases, (*dbq.Queries).SharedErasesOfHost, hostID)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.ending, err = q.EndingMountsOfHost(ctx, hostID, agentapi.VolumeFlushMaxS)
		return err
	})
}

// desiredOf returns the desired state, and the leases that cannot be part of it: that cannot be read, or are too large.
// It is nil if it is too large without them. Only here are the renters' secrets decrypted.
func (hs *Hosts) desiredOf(f desiredFacts) (d *agentapi.Desired, left []unsendable, err error) {
	device := map[id.GPU]string{}
	for _, g := range f.names {
		device[g.ID] = g.UUID
	}
	d = &agentapi.Desired{Revision: f.at.Revision, ControlEpoch: f.at.ControlEpoch, Leases: []agentapi.LeaseSpec{},
		Requalify: f.requalify}
	readable := 0
	for _, r := range f.rows {
		s, err := hs.wholeSpec(r, f, device)
		if err == nil {
			readable++
		}
		if err != nil && r.Cluster.GoAt == nil {
			hs.log.Error("a lease cannot be read", "lease", r.Node.LeaseID, "err", err)
			left = append(left, unsendable{r.Cluster.ID, r.Node.LeaseID, lifecycle.ReasonUnsendable,
				"the platform cannot read its secrets or mounts"})
			continue
		}
		if err != nil { // it has started, and goes on
			hs.log.Error("a running lease cannot be read whole", "lease", r.Node.LeaseID, "err", err)
		}
		d.Leases = append(d.Leases, s)
	}
	if readable == 0 && len(f.rows) > 0 { // no lease is to blame: this replica may have another secret
		return nil, nil, fmt.Errorf("none of %d leases can be read", len(f.rows))
	}
	for _, e := range f.erases {
		d.SharedErase = append(d.SharedErase, agentapi.SharedErase{
			Name: e.Name, Marker: e.Marker, Folder: e.FolderID.String(),
		})
	}
	d.Ending = hs.ending(f.ending)
	out, fits := fitState(d, hs.cfg.MaxState)
	for _, l := range out {
		i := slices.IndexFunc(f.rows, func(r dbq.LeaseFactsRow) bool { return r.Node.LeaseID.String() == l.Lease })
		left = append(left, unsendable{f.rows[i].Cluster.ID, f.rows[i].Node.LeaseID, lifecycle.ReasonUnsendable,
			fmt.Sprintf("it takes %d bytes of a message that carries %d for the whole host", agentapi.SizeOf(l),
				hs.cfg.MaxState)})
	}
	if !fits {
		return nil, left, nil
	}
	return d, left, nil
}

// wholeSpec returns what a host needs to know of one lease. With an error it returns as much as could be read.
func (hs *Hosts) wholeSpec(r dbq.LeaseFactsRow, f desiredFacts,
	device map[id.GPU]string) (s agentapi.LeaseSpec, err error) {
	var errs [4]error
	s, errs[0] = hs.leaseSpec(r, f.peers, device)
	s.Mounts, s.Lazy, errs[1] = hs.mounts(r.Cluster, f.mounts)
	s.Buckets, errs[2] = hs.buckets(r.Cluster, f.buckets)
	s.Shared, errs[3] = shared(r.Cluster, f.shared)
	return s, errors.Join(errs[:]...)
}

// leaseSpec returns a lease without its mounts. With an error it returns as much as could be read.
func (hs *Hosts) leaseSpec(r dbq.LeaseFactsRow, peers []dbq.PeersOfHostRow,
	device map[id.GPU]string) (agentapi.LeaseSpec, error) {
	cl := r.Cluster
	var spec market.Spec
	err := json.Unmarshal(cl.Spec, &spec)
	if err != nil {
		err = fmt.Errorf("read the spec of %s: %w", cl.ID, err)
	}
	secrets, failed := hs.secrets(cl)
	err = errors.Join(err, failed)
	s := agentapi.LeaseSpec{
		LeaseRef:    agentapi.LeaseRef{Lease: r.Node.LeaseID.String(), Epoch: int(r.LeaseEpoch)},
		Cluster:     cl.ID.String(),
		Node:        r.Node.ID.String(),
		Rank:        int(r.Node.Rank),
		Nodes:       int(cl.NodeCount),
		Go:          cl.GoAt != nil,
		Image:       cl.ImageRef,
		Digest:      cl.ImageDigest,
		Entrypoint:  spec.Entrypoint,
		Command:     spec.Command,
		User:        spec.User,
		Env:         secrets.Env,
		CPUs:        r.CPUCores,
		RAMMB:       r.RAMMb,
		DiskGB:      r.DiskGb,
		DiskLimited: spec.DiskLimited,
		Runtime:     spec.Runtime,
		ScratchGB:   spec.ScratchGB,
		Egress:      spec.Egress,
		GraceS:      int(lifecycle.StopGrace.Seconds()),
		GPUs:        []string{},
		Network: agentapi.Network{
			CIDR:    overlay.String(),
			Address: r.Node.Address,
			MTU:     mtu,
			MinGbps: spec.Network.MinGbps,
			Fabric:  spec.Network.Fabric,
			Peers:   []agentapi.Peer{},
		},
	}
	if r.Pkey > 0 {
		s.Network.Partition = &agentapi.Partition{Fabric: r.FabricName, Cluster: cl.ID.String(), PKey: int(r.Pkey)}
	}
	if r.MeasuresRdma && spec.Network.RDMA() {
		s.Network.NCCL = &agentapi.NCCLRequest{MinGbps: spec.Network.MinBusbwGbps}
	}
	if a := secrets.RegistryAuth; a != nil {
		s.RegistryAuth = &agentapi.RegistryAuth{Username: a.Username, Password: a.Password}
	}
	if cl.GoAt != nil && r.LeaseRunUntil != nil {
		s.RunUntilMS = r.LeaseRunUntil.UnixMilli()
	}
	if len(hs.cfg.Relays) > 0 && cl.NodeCount > 1 {
		s.Network.Relays = relaysOf(hs.cfg.Relays, cl.ID)
		s.Network.RelayToken = hs.relayToken(dbq.LiveLeasesRow{ID: r.Node.LeaseID, Epoch: r.LeaseEpoch, Rank: r.Node.Rank,
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
				Endpoints: agentapi.PeerEndpoints(p.Endpoints),
			})
		}
	}
	return s, err
}

// secrets decrypts a cluster's environment and registry credentials.
func (hs *Hosts) secrets(cl dbq.Cluster) (market.Secrets, error) {
	var s market.Secrets
	if len(cl.Secrets) == 0 {
		return s, nil
	}
	plain, err := hs.cfg.Box.Open(cl.Secrets, belongs(cl.ID))
	if err != nil {
		return s, fmt.Errorf("secrets of %s: %w", cl.ID, err)
	}
	return s, json.Unmarshal(plain, &s)
}

// relaysPerCluster is the number of relays of a cluster: one of them may fail.
const relaysPerCluster = 2

// relayMargin is for how long past its lease's authorised time a rank's token opens a relay. Relays are strict, so this
// is all the tolerance there is for clocks: if a relay's clock is ahead of the control plane's by more than this, less
// the time that a workload takes to stop, a lease that may still run loses its relay.
const relayMargin = 5 * time.Minute

// relaysOf returns a cluster's relays out of all relays. Each cluster orders them differently, so that load spreads,
// and adding or removing a relay moves as few clusters as possible.
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

// relayToken returns the token that opens the cluster's relays for one run of a rank, for as long as it may run or take
// to start. Each call returns the same token until that time changes.
func (hs *Hosts) relayToken(r dbq.LiveLeasesRow) string {
	until := latest(deref(r.RunUntil), deref(r.StartDeadline))
	if until.IsZero() { // a rank that goes on elsewhere, before money was held for its new lease
		until = time.Now().Truncate(relayMargin).Add(relayMargin)
	}
	return agentapi.NewRelayToken(hs.cfg.RelaySecret, agentapi.RelayClaims{
		Cluster: [16]byte(r.ClusterID.UUID()), Rank: uint16(r.Rank), Epoch: uint32(r.Epoch), Expires: until.Add(relayMargin),
	}).Text()
}

// extensions returns until when a host's live leases may run, with the tokens that open their relays for as long. A
// host that receives nothing more keeps its relays for as long as its leases may run.
func (hs *Hosts) extensions(live []dbq.LiveLeasesRow) []agentapi.LeaseExtension {
	out := make([]agentapi.LeaseExtension, len(live))
	for i, r := range live {
		out[i].LeaseRef = agentapi.LeaseRef{Lease: r.ID.String(), Epoch: int(r.Epoch)}
		if len(hs.cfg.Relays) > 0 && r.NodeCount > 1 {
			out[i].RelayToken = hs.relayToken(r)
		}
		if r.RunUntil != nil {
			out[i].RunUntilMS = r.RunUntil.UnixMilli()
		}
	}
	return out
}
