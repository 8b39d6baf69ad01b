package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// KeepTraffic is how long the traffic of leases is stored: reports of abuse can take this long to arrive.
const KeepTraffic = 180 * 24 * time.Hour

// recordTraffic records the traffic of the host's own leases, and reports whether there was any in the report. Traffic
// that was reported before and traffic of other hosts' leases change nothing.
func recordTraffic(ctx context.Context, tx *db.Tx, host id.Host,
	leases []agentapi.LeaseStatus) (reported bool, err error) {
	var p dbq.PutLeaseTrafficParams
	if appendTraffic(&p, host, leases); len(p.Leases) == 0 {
		return false, nil
	}
	if err := tx.Q.PutLeaseTraffic(ctx, p); err != nil {
		return false, fmt.Errorf("traffic of %s: %w", host, err)
	}
	return true, nil
}

// RecordTraffic records the traffic of many hosts' leases with one statement. None of the hosts may have a data cap.
func RecordTraffic(ctx context.Context, d *db.DB, leases map[id.Host][]agentapi.LeaseStatus) error {
	var p dbq.PutLeaseTrafficParams
	for h, l := range leases {
		appendTraffic(&p, h, l)
	}
	if len(p.Leases) == 0 {
		return nil
	}
	if err := d.Q.PutLeaseTraffic(ctx, p); err != nil {
		return fmt.Errorf("traffic of %d hosts: %w", len(leases), err)
	}
	return nil
}

// appendTraffic appends the traffic of a host's leases, once of each run.
func appendTraffic(p *dbq.PutLeaseTrafficParams, host id.Host, leases []agentapi.LeaseStatus) {
	seen := map[agentapi.LeaseRef]bool{}
	for _, l := range leases {
		v, err := id.Parse[id.Lease](l.Lease)
		if err != nil || l.Traffic == nil || seen[l.LeaseRef] {
			continue
		}
		seen[l.LeaseRef] = true
		p.Hosts, p.Leases = append(p.Hosts, id.UUIDs(host)...), append(p.Leases, id.UUIDs(v)...)
		p.Epochs = append(p.Epochs, int32(l.Epoch))
		p.Opened, p.Refused = append(p.Opened, l.Traffic.Opened), append(p.Refused, l.Traffic.Refused)
		p.UpBytes, p.DownBytes = append(p.UpBytes, l.Traffic.Up), append(p.DownBytes, l.Traffic.Down)
		p.OverlayUp, p.OverlayDown = append(p.OverlayUp, l.Traffic.OverlayUp), append(p.OverlayDown, l.Traffic.OverlayDown)
		p.RanksSent, p.RanksReceived = append(p.RanksSent, l.Traffic.RanksSent),
			append(p.RanksReceived, l.Traffic.RanksReceived)
	}
}

// Traffic returns the traffic of at most limit leases on one host of who's organisation, most recently reported first.
// Fault: NotFound.
func (x *Hosts) Traffic(ctx context.Context, who account.Principal, host id.Host, limit int) ([]client.Traffic, error) {
	if h, err := Read(ctx, x.db.Q, host); err != nil {
		return nil, err
	} else if h.Org != who.Org {
		return nil, NotFound()
	}
	rows, err := x.db.Q.HostTraffic(ctx, host, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("traffic of %s: %w", host, err)
	}
	out := make([]client.Traffic, len(rows))
	for i, r := range rows {
		out[i] = client.Traffic{
			LeaseID:     r.LeaseID,
			Epoch:       int(r.Epoch),
			Connections: r.Opened,
			Refused:     r.Refused,
			UpBytes:     r.UpBytes,
			DownBytes:   r.DownBytes,
			OverlayUp:   r.OverlayUpBytes,
			OverlayDown: r.OverlayDownBytes,
			FirstAt:     r.FirstAt.UTC(),
			LastAt:      r.LastAt.UTC(),
			EndedAt:     r.EndedAt,
		}
	}
	return out, nil
}

// recordPulls records how many bytes of images the host has received, and reports whether that number is new. A nil p
// and numbers that were reported before change nothing.
func recordPulls(ctx context.Context, tx *db.Tx, host id.Host, p *agentapi.Pulled) (changed bool, err error) {
	if p == nil {
		return false, nil
	}
	// Remove NUL bytes, which PostgreSQL cannot store: such a name must not make the whole report fail.
	counter := strings.ReplaceAll(p.Counter, "\x00", "")
	n, err := tx.Q.PutHostPulls(ctx, host, counter, p.Bytes)
	if err != nil {
		return false, fmt.Errorf("pulls of %s: %w", host, err)
	}
	return n > 0, nil
}

// DropOldTraffic deletes traffic older than KeepTraffic and returns how many rows it deleted.
func DropOldTraffic(ctx context.Context, d *db.DB) (int64, error) {
	n, err := d.Q.DropOldTraffic(ctx, KeepTraffic.Seconds())
	if err != nil {
		return 0, fmt.Errorf("old traffic: %w", err)
	}
	return n, nil
}
