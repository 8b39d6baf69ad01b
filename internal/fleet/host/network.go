package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Line is a preflight's measurement of one host: the highest rates at which it sent to and received from another host.
type Line struct {
	Host             id.Host
	UpMbps, DownMbps float64
}

// keepMeasured is how long a higher measurement overrides newer lower ones.
const keepMeasured = 7 * 24 * time.Hour

// RecordNetwork stores a preflight's measurements for search and placement: each host's line, and the bus bandwidth if
// all hosts of the gang are in one fabric. The best value of a week counts, because a slow peer does not show that the
// host is slow.
func RecordNetwork(ctx context.Context, tx *db.Tx, lines []Line, busbwGbps float64, at time.Time) error {
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Or(a.Host.Compare(b.Host)) }) // same lock order everywhere
	since := at.Add(-keepMeasured)
	var hosts []pgtype.UUID
	for _, l := range lines {
		hosts = append(hosts, pgtype.UUID{Bytes: l.Host.UUID(), Valid: true})
		if l.UpMbps <= 0 || l.DownMbps <= 0 {
			continue
		}
		if err := tx.Q.MeasuredNet(ctx, dbq.MeasuredNetParams{
			HostID:     l.Host,
			UpMbps:     &l.UpMbps,
			DownMbps:   &l.DownMbps,
			MeasuredAt: &at,
			Since:      &since,
		}); err != nil {
			return fmt.Errorf("line of %s: %w", l.Host, err)
		}
	}
	if len(hosts) < 2 || busbwGbps <= 0 {
		return nil
	}
	if err := tx.Q.MeasuredFabric(ctx, dbq.MeasuredFabricParams{
		Hosts:      hosts,
		BusbwGbps:  &busbwGbps,
		MeasuredAt: &at,
		Since:      &since,
	}); err != nil {
		return fmt.Errorf("bus bandwidth of a fabric: %w", err)
	}
	return nil
}

// Fabric is what the ranks of a cluster measured together with NCCL over the RDMA ports of their hosts.
type Fabric struct {
	Cluster   id.Cluster
	BusbwGbps float64 // the lowest that any rank measured
	Hosts     []FabricHost
}

// FabricHost is one host's part of it.
type FabricHost struct {
	Host      id.Host
	LocalGbps float64 // between its own GPUs; 0: it has one
	NCCL      string  // the library's version
}

// RDMAMeasuredFor is how long a measurement over RDMA counts in offers.
const RDMAMeasuredFor = 30 * 24 * time.Hour

// RecordFabric stores a measurement over RDMA for search and placement.
func RecordFabric(ctx context.Context, tx *db.Tx, f Fabric, at time.Time) error {
	hosts := slices.Clone(f.Hosts)
	slices.SortFunc(hosts, func(a, b FabricHost) int { return a.Host.Compare(b.Host) }) // same lock order everywhere
	for _, h := range hosts {
		if err := tx.Q.MeasuredRDMA(ctx, dbq.MeasuredRDMAParams{
			HostID:     h.Host,
			BusbwGbps:  f.BusbwGbps,
			MeasuredAt: at,
			Hosts:      int32(len(hosts)),
			LocalGbps:  h.LocalGbps,
			Nccl:       text.Clip(h.NCCL, 20),
			ClusterID:  pgtype.UUID{Bytes: f.Cluster.UUID(), Valid: true},
			Since:      at.Add(-keepMeasured),
		}); err != nil {
			return fmt.Errorf("RDMA network of %s: %w", h.Host, err)
		}
	}
	return nil
}

// OfferedGbps returns the all-reduce bandwidth between hosts that their offers promise, in Gbit/s. It is the measured
// bandwidth of their fabric if they are all in one; else the slowest direction of their lines; 0 if any line has not
// been measured.
func OfferedGbps(ctx context.Context, tx *db.Tx, hosts []id.Host) (float64, error) {
	rows, err := tx.Q.OfferedNetwork(ctx, id.UUIDs(hosts...))
	if err != nil {
		return 0, fmt.Errorf("what is offered of the network: %w", err)
	}
	return offered(rows), nil
}

func offered(rows []dbq.OfferedNetworkRow) float64 {
	if len(rows) < 2 {
		return 0
	}
	one := !rows[0].FabricID.IsZero() && rows[0].BusbwGbps != nil
	least := 0.0
	for i, r := range rows {
		one = one && r.FabricID == rows[0].FabricID
		if r.NetUpMbps == nil || r.NetDownMbps == nil {
			least = -1
		} else if line := min(*r.NetUpMbps, *r.NetDownMbps) / 1000; least >= 0 && (i == 0 || line < least) {
			least = line
		}
	}
	if one {
		return *rows[0].BusbwGbps
	}
	return max(least, 0)
}
