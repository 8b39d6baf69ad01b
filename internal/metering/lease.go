package metering

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
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
	Currency     string
	HostSharePPM int64       // the operator's part of every charge, in millionths
	Epoch        int         // of the first start, from 1
	Rate         money.Micro // per hour, the whole lease
	Items        []PriceItem // what Rate is made of; they add up to it
}

// PriceItem is one line of a lease's price as it was quoted.
type PriceItem struct {
	Label    string      `json:"label"`    // "4 × NVIDIA H100 80GB HBM3"
	Quantity int64       `json:"quantity"` // 4
	Unit     string      `json:"unit"`     // "gpu", "gb"
	UnitRate money.Micro `json:"unit_rate"`
	Rate     money.Micro `json:"rate"` // per hour
}

// CreateLeases writes leases with their prices and empty meters.
func CreateLeases(ctx context.Context, tx *db.Tx, leases []NewLease) error { return notBuilt() }

// SetEpoch raises the epoch of a lease: a restart. Segments of earlier epochs stay valid for the time they prove.
func SetEpoch(ctx context.Context, tx *db.Tx, lease id.Lease, epoch int) error { return notBuilt() }

// SetRequired says whether a lease's rank must be up for the cluster's seconds to count.
func SetRequired(ctx context.Context, tx *db.Tx, lease id.Lease, required bool) error {
	return notBuilt()
}

// EndLeases ends every live lease of the cluster at the given moment of PostgreSQL's clock: they are no longer
// desired, and no later time of theirs is billed. Already ended leases stay as they are. Close the window first.
func EndLeases(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	return notBuilt()
}

// EndLease is EndLeases for one lease.
func EndLease(ctx context.Context, tx *db.Tx, lease id.Lease, at time.Time) error { return notBuilt() }

// LeaseGone notes that the host's full report no longer shows the lease.
func LeaseGone(ctx context.Context, tx *db.Tx, lease id.Lease) error { return notBuilt() }

// Extensions is until when each live lease of the host may run, as the agent is told.
func Extensions(ctx context.Context, q *dbq.Queries, host id.Host) ([]agentapi.LeaseExtension, error) {
	return nil, notBuilt()
}

func notBuilt() error { return fault.New(fault.Unavailable, "not built yet") }
