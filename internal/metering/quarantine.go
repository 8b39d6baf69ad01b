package metering

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// quarantine keeps what is refused. A conflict that was not seen before freezes its lease: the money waits until an
// admin has looked.
func quarantine(ctx context.Context, tx *db.Tx, leases map[id.Lease]*lease, rs []*received) error {
	var p dbq.InsertQuarantinedParams
	var of []*received
	for _, r := range rs {
		if r.refused == "" {
			continue
		}
		payload, hash := r.quarantined()
		p.HostIds, p.Leases = append(p.HostIds, raw(r.host)), append(p.Leases, raw(r.lease))
		p.Reasons = append(p.Reasons, r.refused)
		p.Payloads, p.Hashes = append(p.Payloads, payload), append(p.Hashes, hash[:])
		of = append(of, r)
	}
	if len(of) == 0 {
		return nil
	}
	inserted, err := tx.Q.InsertQuarantined(ctx, p)
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	type kept struct {
		host id.Host
		hash string
	}
	isNew := make(map[kept]bool, len(inserted))
	for _, k := range inserted {
		isNew[kept{k.HostID, string(k.PayloadHash)}] = true
	}
	for i, r := range of {
		if l := leases[r.lease]; l != nil && r.refused == refusedConflict && isNew[kept{r.host, string(p.Hashes[i])}] {
			l.frozen, l.freezing = true, true
			if err := tellOfConflict(ctx, tx, l, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellOfConflict tells the host's operator and the platform's admins.
func tellOfConflict(ctx context.Context, tx *db.Tx, l *lease, r *received) error {
	orgs, err := tx.Q.AdminOrgs(ctx)
	if err != nil {
		return fmt.Errorf("admins: %w", err)
	}
	if !slices.Contains(orgs, l.HostOrgID) {
		orgs = append(orgs, l.HostOrgID)
	}
	for _, org := range orgs {
		if _, err := notify.Add(ctx, tx, notify.Notice{
			Org: org, Key: fmt.Sprintf("segment_conflict:%s", l.ID), Severity: notify.Bad, Object: l.HostID.String(),
			Title: "A host signed two different accounts of the same time",
			Body: fmt.Sprintf("Segment %d of lease %s (start %d) came again with other content. The first one stands. "+
				"Money for the lease waits until an administrator has looked.", r.Seq, l.ID, r.Epoch),
		}); err != nil {
			return err
		}
	}
	return nil
}

// Unfreeze lets a lease's money move again after an admin has looked at its conflicting segments. The first accepted
// ones stand. What has been proven meanwhile is posted. A lease that is not frozen is fault.Conflict.
func Unfreeze(ctx context.Context, tx *db.Tx, lease id.Lease) error {
	n, err := tx.Q.UnfreezeMeter(ctx, lease)
	if err != nil {
		return fmt.Errorf("metering: unfreeze: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "the lease is not frozen")
	}
	cluster, err := tx.Q.ClusterOfLease(ctx, lease)
	if err != nil {
		return fmt.Errorf("metering: unfreeze: %w", err)
	}
	return Post(ctx, tx, cluster)
}

func sortByID(ls []*lease) {
	slices.SortFunc(ls, func(a, b *lease) int {
		x, y := a.ID.UUID(), b.ID.UUID()
		return bytes.Compare(x[:], y[:])
	})
}
