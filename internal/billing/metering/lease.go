package metering

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// NewLease is what a rent decides about one node. Price, share and terms are frozen with it.
type NewLease struct {
	ID           id.Lease
	Cluster      id.Cluster
	Node         id.Node
	Rank         int
	Host         id.Host
	Renter       id.Org // who pays
	Operator     id.Org // who earns
	GPUModel     string
	GPUs         []id.GPU
	CPUs         float64
	RAMMB        int64
	DiskGB       int64
	ScratchGB    int64 // 0 = none
	Currency     string
	HostSharePPM int64       // the operator's part of every charge, in millionths
	Epoch        int         // of the first start, from 1
	Rate         money.Micro // per hour, the whole lease
	Items        []PriceItem // what Rate is made of; they add up to it
}

// PriceItem is one line of a lease's price as it was quoted.
type PriceItem = client.PriceItem

// CreateLeases writes leases with their prices and empty meters. They may not run before Authorise.
func CreateLeases(ctx context.Context, tx *db.Tx, leases []NewLease) error {
	b := &pgx.Batch{}
	if err := queueLeases(b, leases, nil, 0); err != nil {
		return err
	}
	if err := tx.Send(ctx, b); err != nil {
		return fmt.Errorf("create leases: %w", err)
	}
	return nil
}

// queueLeases queues the writes of leases, with what is authorised already.
func queueLeases(b *pgx.Batch, leases []NewLease, runUntil *time.Time, coveredFrom int64) error {
	for _, l := range leases {
		if l.Rate < 0 || l.HostSharePPM < 0 || l.HostSharePPM > 1_000_000 || l.Epoch < 1 || len(l.GPUs) == 0 {
			return fmt.Errorf("lease %s: rate, share, epoch or GPUs out of range", l.ID)
		}
		items, err := json.Marshal(l.Items)
		if err != nil {
			return fmt.Errorf("encode price items: %w", err)
		}
		db.Write(b, (*dbq.Queries).InsertLease, dbq.InsertLeaseParams{
			ID:            l.ID,
			ClusterID:     l.Cluster,
			NodeID:        l.Node,
			Rank:          int32(l.Rank),
			HostID:        l.Host,
			RenterOrgID:   l.Renter,
			HostOrgID:     l.Operator,
			GPUCount:      int32(len(l.GPUs)),
			GPUModel:      l.GPUModel,
			GPUIds:        l.GPUs,
			CPUCores:      l.CPUs,
			RAMMb:         l.RAMMB,
			DiskGb:        l.DiskGB,
			ScratchGb:     l.ScratchGB,
			Currency:      l.Currency,
			HostSharePpm:  int32(l.HostSharePPM),
			Epoch:         int32(l.Epoch),
			RunUntil:      runUntil,
			CoveredFromMs: coveredFrom,
			Rate:          l.Rate,
			Items:         items,
		})
	}
	return nil
}

// SetEpoch raises the epoch of a live lease: a restart. Segments of earlier epochs stay valid for the time they prove.
// An ended lease, or a lower epoch, is fault.Conflict.
func SetEpoch(ctx context.Context, tx *db.Tx, lease id.Lease, epoch int) error {
	n, err := tx.Q.SetLeaseEpoch(ctx, int32(epoch), lease)
	if err == nil && n == 0 {
		return fault.New(fault.Conflict, "the lease has ended or has a later epoch")
	}
	return err
}

// SetRequired sets whether a lease's rank must be up for the cluster's seconds to count.
func SetRequired(ctx context.Context, tx *db.Tx, lease id.Lease, required bool) error {
	_, err := tx.Q.SetLeaseRequired(ctx, required, lease)
	return err
}

// EndLeases ends every live lease of the cluster at the given moment of PostgreSQL's clock: they are no longer
// desired, and no later time of theirs is billed. Already ended leases stay as they are; time that may have been posted
// already is not cut off. Close the window first.
func EndLeases(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	ids, err := tx.Q.LiveLeaseIDs(ctx, cluster)
	if err != nil {
		return fmt.Errorf("read live leases: %w", err)
	}
	for _, l := range ids {
		if err := EndLease(ctx, tx, l, at); err != nil {
			return err
		}
	}
	return nil
}

// EndLease is EndLeases for one lease.
func EndLease(ctx context.Context, tx *db.Tx, lease id.Lease, at time.Time) error {
	if err := tx.Q.EndLease(ctx, at, lease); err != nil {
		return fmt.Errorf("end lease: %w", err)
	}
	return nil
}

// LeaseGone notes that the host's full report no longer shows the lease.
func LeaseGone(ctx context.Context, tx *db.Tx, lease id.Lease) error {
	return tx.Q.SetLeaseGone(ctx, lease)
}

// LeaseGPUsFree notes that an ended lease no longer needs its GPUs, while its host uploads what it wrote. scratchGB is
// what of its scratch was the node's own, which its host has removed.
func LeaseGPUsFree(ctx context.Context, tx *db.Tx, lease id.Lease, scratchGB int64) error {
	if err := tx.Q.SetLeaseGPUsFree(ctx, scratchGB, lease); err != nil {
		return fmt.Errorf("free the GPUs of %s: %w", lease, err)
	}
	return nil
}

// Leases are the use cases of metered leases, for the API, the pages and the command line. Safe for concurrent use.
type Leases struct{ d *db.DB }

// NewLeases returns the use cases on d.
func NewLeases(d *db.DB) *Leases { return &Leases{d} }
