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
)

// Line is what a gang's preflight measured of one host: the quickest it sent to, and received from, another host.
type Line struct {
	Host             id.Host
	UpMbps, DownMbps float64
}

// keepMeasured is how long a better figure outweighs a newer one.
const keepMeasured = 7 * 24 * time.Hour

// RecordNetwork keeps what a preflight measured between hosts, for search and placement: each host's line, and for a
// gang within one fabric its bus bandwidth. The best of a week counts: a slow partner says nothing of a host.
func RecordNetwork(ctx context.Context, tx *db.Tx, lines []Line, busbwGbps float64, at time.Time) error {
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Or(a.Host.Compare(b.Host)) }) // one order of locks
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
			return fmt.Errorf("host: line of %s: %w", l.Host, err)
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
		return fmt.Errorf("host: bus bandwidth of a fabric: %w", err)
	}
	return nil
}

// OfferedGbps is what the offers of hosts say of an all-reduce between them, in Gbit/s: the figure of their fabric,
// where they are of one and it has been measured; else what the slowest of their lines gives one way; 0 where that is
// not known of all.
func OfferedGbps(ctx context.Context, tx *db.Tx, hosts []id.Host) (float64, error) {
	rows, err := tx.Q.OfferedNetwork(ctx, uuids(hosts))
	if err != nil {
		return 0, fmt.Errorf("host: what is offered of the network: %w", err)
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
