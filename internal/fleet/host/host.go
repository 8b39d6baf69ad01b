// Package host manages the hosts that offer GPUs: their enrolment and keys, inventory, health, and claims on their
// GPUs.
//
// Invariants:
//   - A GPU has at most one claim that has not ended (a unique index). A lease's claim outlives the lease: it ends when
//     a full report, made when the host knew of the lease's end, no longer shows the lease, or as "abandoned" after the
//     host was unreachable for AbandonAfter.
//   - A GPU that the host itself uses, outside leases, is not free and gets no new claims.
//   - Renting locks the host row. Reports write host_status, and update the host row only if something that matters for
//     renting changed.
//   - The data that leases moved over a host's line in a month is the sum of what the host's reports added (triggers
//     maintain it). A used-up data cap prevents new leases and ends none.
//   - A GPU is active on one host only. Inventory never deletes GPUs: missing ones are marked as not present;
//     those of an ephemeral host are removed from it once they have no claim.
//   - A host's revision only rises, in every transaction that changes what the host should run.
//   - Private keys never leave the host. Enrolment tokens are stored as hashes, work once, and are valid for at most an
//     hour.
//
// Functions that take a *db.Tx run in their caller's transaction. Lock hosts before claiming GPUs on them; hosts come
// before GPUs in the lock order.
package host

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// State is a host's state, as set by enrolment and by its operator.
type State string

const (
	Enrolled State = "enrolled" // has not reported yet
	Active   State = "active"
	Draining State = "draining" // takes no new leases
	Retired  State = "retired"  // final: keys revoked, GPUs free to enrol elsewhere
)

const (
	// ReachableFor is how long after its last sync a connected host counts as reachable: two missed idle syncs (60 s,
	// jittered) plus a margin. A closed connection makes the host unreachable at once.
	ReachableFor = 150 * time.Second
	// AbandonAfter is how long a host must be unreachable before the claims of ended leases on it end.
	AbandonAfter = 10 * time.Minute
)

// Host is one host with its status.
type Host struct {
	ID              id.Host
	Org             id.Org
	Name            string
	Region          string
	Fabric          id.Fabric // zero = none
	State           State
	Simulated       bool
	Ephemeral       bool       // its machine may vanish and come back with other GPUs
	MultiNode       bool       // peers on other hosts can reach it
	NeedsFullReport bool       // it must send a full report before it may sell again
	ReclaimAt       *time.Time // when its running leases end because of Reclaim
	EngineAway      string     // why its container engine does not respond, for its operator; "" = it responds
	Blocked         string     // why its inventory prevents renting; "" = it does not
	CappedUntil     *time.Time // data cap used up: no new leases before this time
	Revision        int64
	BootID          string
	CPUCores        int
	RAMMB, DiskGB   int64
	ScratchGB       int64    // limit for the scratch of all nodes together
	DiskLimited     bool     // the host enforces nodes' disk_gb
	Runtimes        []string // OCI runtimes available for workloads
	Driver, CUDAMax string
	InventoryAt     *time.Time
	CreatedAt       time.Time
	RetiredAt       *time.Time
	Status          Status
}

// Status is the part of a host that changes with every report.
type Status struct {
	Session              int64 // number of the current or last connection
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

// Reachable reports whether the host is connected and has synced within ReachableFor.
func (h *Host) Reachable(now time.Time) bool {
	s := h.Status
	return s.Connected && s.LastSyncAt != nil && now.Sub(*s.LastSyncAt) <= ReachableFor
}

// Unsellable returns the reason for which nothing of the host can be rented now, or "". It does not consider the host's
// GPUs and prices.
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

// Lock locks hosts in the order of their ids and returns them in that order. Renting, changing a host's desired state
// and changing a host all need this lock. Unknown ids are ignored.
func Lock(ctx context.Context, tx *db.Tx, hosts []id.Host) ([]Host, error) {
	rows, err := tx.Q.LockHosts(ctx, id.UUIDs(hosts...))
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	out := make([]Host, len(rows))
	for i, r := range rows {
		out[i] = fromRow(r.Host, r.HostStatus)
	}
	return out, nil
}

// QueueHosts queues the statement of Lock. The batch stores the hosts in *into.
func QueueHosts(b *pgx.Batch, hosts []id.Host, into *[]Host) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockHosts(ctx, id.UUIDs(hosts...))
		*into = nil
		for _, r := range rows {
			*into = append(*into, fromRow(r.Host, r.HostStatus))
		}
		return err
	})
}

// QueueLock queues the statement of LockOnly.
func QueueLock(b *pgx.Batch, hosts []id.Host) {
	if len(hosts) > 0 {
		db.Write(b, (*dbq.Queries).LockHostRows, id.UUIDs(hosts...))
	}
}

// LockOnly locks hosts as Lock does, without reading them.
func LockOnly(ctx context.Context, tx *db.Tx, hosts []id.Host) error {
	if err := tx.Q.LockHostRows(ctx, id.UUIDs(hosts...)); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// lockOne locks and returns one host. Fault: NotFound.
func lockOne(ctx context.Context, tx *db.Tx, host id.Host) (Host, error) {
	hs, err := Lock(ctx, tx, []id.Host{host})
	if err != nil {
		return Host{}, err
	}
	if len(hs) == 0 {
		return Host{}, fault.New(fault.NotFound, "host not found")
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
		Ephemeral:       h.Ephemeral,
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

// Read returns a host of any organisation without locking it. Fault: NotFound.
func Read(ctx context.Context, q *dbq.Queries, host id.Host) (Host, error) {
	r, err := q.ReadHost(ctx, host)
	if db.NoRows(err) {
		return Host{}, NotFound()
	}
	if err != nil {
		return Host{}, fmt.Errorf("read %s: %w", host, err)
	}
	return fromRow(r.Host, r.HostStatus), nil
}
