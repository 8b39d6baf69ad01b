package metering

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
)

// FrozenLease is a lease whose money waits because its host signed two different records of the same time.
type FrozenLease = client.FrozenLease

// Conflict is one number under which a host signed two things. The first stands.
type Conflict = client.Conflict

// maxFrozen bounds the list of frozen leases: one is an alarm.
const maxFrozen = 200

// Frozen lists the leases whose money waits, oldest first, at most 200, with the reason. Only an admin may.
func (s *Leases) Frozen(ctx context.Context, who account.Principal) ([]FrozenLease, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := s.d.Q.FrozenMeters(ctx, maxFrozen)
	if err != nil {
		return nil, fmt.Errorf("read frozen leases: %w", err)
	}
	ids := make([]id.Lease, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	leases, err := readMeters(ctx, s.d.Q, ids, true)
	if err != nil {
		return nil, err
	}
	conflicts, err := conflictsOf(ctx, s.d.Q, ids)
	if err != nil {
		return nil, err
	}
	out := make([]FrozenLease, len(rows))
	for i, r := range rows {
		l := leases[i] // both in lease-id order
		_, p := Charge(l.meter, nil, l.windows, l.terms)
		out[i] = FrozenLease{
			Lease:     r.ID,
			Cluster:   r.ClusterID,
			Rank:      int(r.Rank),
			Host:      r.HostID,
			HostName:  r.HostName,
			Renter:    r.RenterOrgID,
			Operator:  r.HostOrgID,
			Currency:  l.Currency,
			Posted:    l.meter.Posted,
			Waiting:   p.Renter,
			Conflicts: append([]Conflict{}, conflicts[r.ID]...),
		}
	}
	return out, nil
}

// conflictsOf returns what was refused, with what stands.
func conflictsOf(ctx context.Context, q *dbq.Queries, ids []id.Lease) (map[id.Lease][]Conflict, error) {
	rows, err := q.ConflictsOf(ctx, idList(ids...))
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	segs := make([]agentapi.Segment, len(rows))
	var k dbq.SegmentTimesParams
	for i, r := range rows {
		if err := json.Unmarshal(r.Payload, &segs[i]); err != nil {
			return nil, fmt.Errorf("decode quarantined segment of %s: %w", r.LeaseID, err)
		}
		k.Leases, k.Epochs = append(k.Leases, raw(r.LeaseID)), append(k.Epochs, int32(segs[i].Epoch))
		k.Boots, k.Seqs = append(k.Boots, segs[i].BootID), append(k.Seqs, segs[i].Seq)
	}
	times, err := q.SegmentTimes(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("read conflicts: %w", err)
	}
	stands := map[segmentKey]dbq.SegmentTimesRow{}
	for _, s := range times {
		stands[segmentKey{s.LeaseID, int(s.Epoch), s.BootID, s.Seq}] = s
	}
	out := map[id.Lease][]Conflict{}
	for i, r := range rows {
		s := segs[i]
		first := stands[segmentKey{r.LeaseID, s.Epoch, s.BootID, s.Seq}]
		out[r.LeaseID] = append(out[r.LeaseID], Conflict{
			Epoch:     s.Epoch,
			BootID:    s.BootID,
			Seq:       s.Seq,
			From:      time.UnixMilli(first.StartMs).UTC(),
			To:        time.UnixMilli(first.EndMs).UTC(),
			OtherFrom: time.UnixMilli(s.StartMS).UTC(),
			OtherTo:   time.UnixMilli(s.EndMS).UTC(),
			At:        r.ReceivedAt.UTC(),
		})
	}
	return out, nil
}

// Frozen lists the operator's leases whose money waits because its host signed two different records of the same time.
// While there is one, nothing that the operator has pending may be paid out.
func Frozen(ctx context.Context, q *dbq.Queries, operator id.Org) ([]id.Lease, error) {
	ids, err := q.FrozenLeases(ctx, operator)
	if err != nil {
		return nil, fmt.Errorf("read frozen leases of %s: %w", operator, err)
	}
	return ids, nil
}

// Unfreeze lets a lease's money move again after an admin has checked its conflicting segments. The first accepted ones
// stand. What has been proven meanwhile is posted, the host's operator is notified of the reason, and the audit log
// records it. It returns the lease. Faults: Forbidden, Invalid (no reason), NotFound, Conflict (the lease is not
// frozen).
func (s *Leases) Unfreeze(ctx context.Context, who account.Principal, of id.Lease, reason string,
	once idem.Request) (id.Lease, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return of, idem.Outcome{}, err
	}
	return idem.Once(ctx, s.d, once, func(ctx context.Context, tx *db.Tx) (id.Lease, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return of, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the host's operator reads "+
				"it")
		}
		cluster, err := tx.Q.ClusterOfLease(ctx, of)
		if db.NoRows(err) {
			return of, fault.New(fault.NotFound, "lease not found")
		}
		if err != nil {
			return of, fmt.Errorf("unfreeze: %w", err)
		}
		leases, err := lockCluster(ctx, tx, cluster) // all of the cluster, in order, before one of them changes
		if err != nil {
			return of, err
		}
		i := slices.IndexFunc(leases, func(l *lease) bool { return l.ID == of })
		if i < 0 || !leases[i].frozen {
			return of, fault.New(fault.Conflict, "the lease is not frozen")
		}
		if err := tx.Q.UnfreezeMeter(ctx, of); err != nil {
			return of, fmt.Errorf("unfreeze: %w", err)
		}
		l := leases[i]
		l.frozen = false
		before := l.meter.Posted
		if err := charge(ctx, tx, unsettled(leases), inFull); err != nil {
			return of, err
		}
		posted := l.meter.Posted - before
		now, err := tx.Now(ctx)
		if err != nil {
			return of, err
		}
		if _, err := notify.Add(ctx, tx, notify.Notice{
			Org:      l.HostOrgID,
			Key:      fmt.Sprintf("unfrozen:%s:%d", of, now.UnixMilli()),
			Severity: notify.Info,
			Object:   l.HostID.String(),
			Title:    "A frozen lease was released",
			Body: fmt.Sprintf("An admin reviewed lease %s, for which your host had signed two different reports. The first "+
				"one counts, and the %s %s that waited was charged: %s", of, posted.Plain(), l.Currency, reason),
		}); err != nil {
			return of, err
		}
		return of, audit.Record(ctx, tx, who.Event("lease.unfreeze", of.String(), map[string]any{
			"posted": posted.String(),
			"reason": reason,
		}))
	})
}
