package metering

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// quarantine stores what is refused and notifies of it. A new conflict freezes its lease: the money waits until an
// admin has decided.
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
		return fmt.Errorf("quarantine segments: %w", err)
	}
	type kept struct {
		host id.Host
		hash string
	}
	isNew := make(map[kept]bool, len(inserted))
	for _, k := range inserted {
		isNew[kept{k.HostID, string(k.PayloadHash)}] = true
	}
	var told alerts
	for i, r := range of {
		if !isNew[kept{r.host, string(p.Hashes[i])}] {
			continue
		}
		l := leases[r.lease]
		if l != nil && r.refused == refusedConflict {
			l.frozen, l.freezing = true, true
		}
		if err := told.add(ctx, tx, l, r); err != nil {
			return err
		}
	}
	return nil
}

// whatRefused is why a segment will never be billed, as the end of a sentence that begins with the segment.
var whatRefused = map[string]string{
	refusedMalformed:    "cannot be read: a number or text in it is out of range",
	refusedSignature:    "is not signed by the host's key, or was changed after it was signed",
	refusedForeign:      "is for a lease that this host does not have",
	refusedAnchor:       "names a time anchor that was never issued to this boot of the host",
	refusedClock:        "has an end that does not follow from its time anchor and the host's clock",
	refusedFuture:       "ends later than now",
	refusedEpoch:        "names a start that never happened",
	refusedBefore:       "begins before its lease",
	refusedUnauthorised: "begins after the lease had to stop",
	refusedLate:         "came after its lease was settled",
}

// alerts notifies of refused segments, once per host, reason and day: what is wrong with one is wrong with many.
type alerts struct {
	admins []id.Org
	sent   map[string]bool
}

func (a *alerts) add(ctx context.Context, tx *db.Tx, l *lease, r *received) error {
	n := notify.Notice{
		Key: fmt.Sprintf("segment_refused:%s:%s:", r.host, r.refused), Severity: notify.Warn, Object: r.host.String(),
		Title: "A usage segment was refused and will not be billed",
		Body: fmt.Sprintf("Segment %d of lease %.60s (start %d) %s. It is kept in quarantine, and nothing was charged "+
			"for it. You will not be notified of further refusals for this reason today.",
			r.Seq, r.Lease, r.Epoch, whatRefused[r.refused]),
	}
	if r.refused == refusedConflict {
		n.Key, n.Severity, n.Title = fmt.Sprintf("segment_conflict:%s", r.lease), notify.Bad,
			"A host signed two different reports of the same time"
		n.Body = fmt.Sprintf("Segment %d of lease %s (start %d) was sent again with different content. The first one "+
			"counts. Charges for the lease and its operator's pending earnings wait until an admin has reviewed it.",
			r.Seq, r.Lease, r.Epoch)
	}
	if a.sent[n.Key] {
		return nil
	}
	if a.sent == nil {
		a.sent = map[string]bool{}
		admins, err := tx.Q.AdminOrgs(ctx)
		if err != nil {
			return fmt.Errorf("read admins: %w", err)
		}
		a.admins = admins
	}
	a.sent[n.Key] = true
	if l == nil || r.refused != refusedConflict {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		n.Key += now.Format(time.DateOnly)
	}
	operator, err := tx.Q.HostOwner(ctx, r.host)
	if err != nil {
		return fmt.Errorf("read owner of %s: %w", r.host, err)
	}
	orgs := slices.Clone(a.admins)
	if !slices.Contains(orgs, operator) {
		orgs = append(orgs, operator)
	}
	for _, n.Org = range orgs {
		if _, err := notify.Add(ctx, tx, n); err != nil {
			return err
		}
	}
	return nil
}

// Refused is a segment that was refused, as it came.
type Refused = client.RefusedSegment

// Quarantined lists refused segments, newest first, those older than before (0: from the newest). Only an admin may.
func (x *Leases) Quarantined(ctx context.Context, who account.Principal, before int64, limit int) ([]Refused, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := x.d.Q.ListQuarantine(ctx, before, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	out := make([]Refused, len(rows))
	for i, r := range rows {
		var s agentapi.Segment
		if err := json.Unmarshal(r.Payload, &s); err != nil {
			return nil, fmt.Errorf("decode quarantined segment %d: %w", r.ID, err)
		}
		why := whatRefused[r.Reason]
		if r.Reason == refusedConflict {
			why = "was sent again with different content under a number that was already accepted"
		}
		out[i] = Refused{
			ID:     r.ID,
			Host:   r.HostID,
			Lease:  s.Lease,
			Reason: r.Reason,
			Why:    why,
			Epoch:  s.Epoch,
			BootID: s.BootID,
			Seq:    s.Seq,
			From:   moment(s.StartMS),
			To:     moment(s.EndMS),
			At:     r.ReceivedAt.UTC(),
		}
	}
	return out, nil
}

// moment returns a time that a host claims, which may be out of any range: what no calendar shows is the year 1.
func moment(ms int64) time.Time {
	const year9999 = 253_402_300_799_999
	if ms < 0 || ms > year9999 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
