// Package host knows the machines that sell: their enrolment and keys, what they have, how they are, and which of
// their GPUs are taken.
//
// What always holds:
//   - A GPU has at most one claim without an end (a unique index), and a lease's claim outlives the lease: it ends
//     when a full report of the host, made in knowledge of the lease's end, no longer shows it, or as "abandoned"
//     after the host was out of reach for AbandonAfter.
//   - A GPU that is in use on its host beside leases is neither free nor claimed anew.
//   - The host row is what renting locks; reports of hosts write host_status and touch the host row only when
//     something that matters for renting changed.
//   - What leases moved over a host's line in a month is the sum of what its reports added (triggers keep it); a cap on
//     it keeps new leases away and ends none.
//   - A GPU is active on one host only, and inventory never deletes: what vanished is kept as not present.
//   - A host's revision only rises, in every transaction that changes what the host should run.
//   - Private keys never leave the host; enrolment tokens are kept as hashes, work once, and for at most an hour.
//
// Functions that take a *db.Tx are parts of their caller's transaction. Lock hosts before claiming on them; hosts come
// before GPUs in the order of locks.
package host

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// State of a host, as its operator set it.
type State string

const (
	Enrolled State = "enrolled" // never reported yet
	Active   State = "active"
	Draining State = "draining" // takes no new leases
	Retired  State = "retired"  // for ever: keys revoked, GPUs free to be enrolled elsewhere
)

const (
	// ReachableFor is how long after its last sync a host still counts as reachable: two missed idle syncs (60 s,
	// jittered) and some. A closed connection ends it at once.
	ReachableFor = 150 * time.Second
	// AbandonAfter is how long a host must be out of reach before the claims of ended leases on it end.
	AbandonAfter = 10 * time.Minute
)

// Host is one machine with its status.
type Host struct {
	ID              id.Host
	Org             id.Org
	Name            string
	Region          string
	Fabric          id.Fabric // zero: none
	State           State
	Simulated       bool
	MultiNode       bool       // peers on other hosts can reach it
	NeedsFullReport bool       // claims were abandoned and the host has not shown yet what it still has
	ReclaimAt       *time.Time // what runs on it ends then: its operator takes it back
	EngineAway      string     // why its container engine does not answer, for its operator; "" = it answers
	Blocked         string     // why its inventory keeps it from selling, in words; "" = it does not
	CappedUntil     *time.Time // its line's data cap is used up: no new leases before then
	Revision        int64
	BootID          string
	CPUCores        int
	RAMMB, DiskGB   int64
	ScratchGB       int64    // what all nodes' scratches may take together
	DiskLimited     bool     // nodes are held to their disk_gb
	Runtimes        []string // OCI runtimes workloads can be run with
	Driver, CUDAMax string
	InventoryAt     *time.Time
	CreatedAt       time.Time
	RetiredAt       *time.Time
	Status          Status
}

// Status is what changes with every report.
type Status struct {
	Session              int64 // number of the present or last connection
	Connected            bool
	ConnectedAt          *time.Time
	DisconnectedAt       *time.Time
	LastSyncAt           *time.Time
	FullReportAt         *time.Time
	RevisionSeen         int64
	AgentVersion         string
	Protocol             int
	Address              string
	NetUpMbps, NetDnMbps *float64
}

// Reachable reports whether the host is connected and has synced lately.
func (h *Host) Reachable(now time.Time) bool {
	s := h.Status
	return s.Connected && s.LastSyncAt != nil && now.Sub(*s.LastSyncAt) <= ReachableFor
}

// Unsellable says in words why nothing of the host can be rented at now, or "" when it can. It knows the host, not
// its GPUs and prices.
func (h *Host) Unsellable(now time.Time) string {
	switch {
	case h.State != Active:
		return "the host is " + string(h.State)
	case h.Blocked != "":
		return h.Blocked
	case !h.Reachable(now):
		return "the host is out of reach"
	case h.EngineAway != "":
		return "the host's container engine does not answer"
	case h.NeedsFullReport:
		return "the host has not shown yet that it is clean"
	case h.CappedUntil != nil && now.Before(*h.CappedUntil):
		return usedUp(*h.CappedUntil)
	case tooOld(h.Status.Protocol):
		return "the host's agent is too old: it keeps its leases, and gets new ones once it is updated"
	}
	return ""
}

// Lock locks hosts for renting, for a change of their desired state, or for a change of themselves, in the order of
// their ids, and returns them in that order. Unknown ids are left out.
func Lock(ctx context.Context, tx *db.Tx, hosts []id.Host) ([]Host, error) {
	rows, err := tx.Q.LockHosts(ctx, uuids(hosts))
	if err != nil {
		return nil, fmt.Errorf("host: lock: %w", err)
	}
	out := make([]Host, len(rows))
	for i, r := range rows {
		out[i] = fromRow(r.Host, r.HostStatus)
	}
	return out, nil
}

// QueueHosts queues what Lock does.
func QueueHosts(b *pgx.Batch, hosts []id.Host, into *[]Host) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockHosts(ctx, uuids(hosts))
		*into = nil
		for _, r := range rows {
			*into = append(*into, fromRow(r.Host, r.HostStatus))
		}
		return err
	})
}

// QueueLock queues what LockOnly does.
func QueueLock(b *pgx.Batch, hosts []id.Host) {
	if len(hosts) > 0 {
		db.Write(b, (*dbq.Queries).LockHostRows, uuids(hosts))
	}
}

// LockOnly is Lock for a caller that reads what it needs itself.
func LockOnly(ctx context.Context, tx *db.Tx, hosts []id.Host) error {
	if err := tx.Q.LockHostRows(ctx, uuids(hosts)); err != nil {
		return fmt.Errorf("host: lock: %w", err)
	}
	return nil
}

// lockOne is Lock for one host that must exist.
func lockOne(ctx context.Context, tx *db.Tx, host id.Host) (Host, error) {
	hs, err := Lock(ctx, tx, []id.Host{host})
	if err != nil {
		return Host{}, err
	}
	if len(hs) == 0 {
		return Host{}, fault.New(fault.NotFound, "No such host.")
	}
	return hs[0], nil
}

func fromRow(h dbq.Host, s dbq.HostStatus) Host {
	return Host{
		ID:              h.ID,
		Org:             h.OrgID,
		Name:            h.Name,
		Region:          h.Region,
		Fabric:          h.FabricID,
		State:           State(h.State),
		Simulated:       h.Simulated,
		MultiNode:       h.MultiNode,
		NeedsFullReport: h.NeedsFullReport,
		ReclaimAt:       h.ReclaimAt,
		EngineAway:      h.EngineAway,
		Blocked:         h.Blocked,
		CappedUntil:     h.CappedUntil,
		Revision:        h.Revision,
		BootID:          h.BootID,
		CPUCores:        int(h.CPUCores),
		RAMMB:           h.RAMMb,
		DiskGB:          h.DiskGb,
		DiskLimited:     h.DiskLimited,
		ScratchGB:       h.ScratchGb,
		Runtimes:        h.Runtimes,
		Driver:          h.Driver,
		CUDAMax:         h.CudaMax,
		InventoryAt:     h.InventoryAt,
		CreatedAt:       h.CreatedAt,
		RetiredAt:       h.RetiredAt,
		Status: Status{
			Session: s.Session, Connected: s.Connected, ConnectedAt: s.ConnectedAt, DisconnectedAt: s.DisconnectedAt,
			LastSyncAt: s.LastSyncAt, FullReportAt: s.FullReportAt, RevisionSeen: s.RevisionSeen,
			AgentVersion: s.AgentVersion, Protocol: int(s.Protocol), Address: s.Address,
			NetUpMbps: s.NetUpMbps, NetDnMbps: s.NetDownMbps,
		},
	}
}

// uuids is ids as query parameters.
func uuids[T interface {
	UUIDValue() (pgtype.UUID, error)
}](ids []T) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, v := range ids {
		out[i], _ = v.UUIDValue() // it never fails
	}
	return out
}

// Read is a host without a lock, whoever owns it.
func Read(ctx context.Context, q *dbq.Queries, host id.Host) (Host, error) {
	r, err := q.ReadHost(ctx, host)
	if db.NoRows(err) {
		return Host{}, NotFound()
	}
	if err != nil {
		return Host{}, fmt.Errorf("host: read %s: %w", host, err)
	}
	return fromRow(r.Host, r.HostStatus), nil
}
