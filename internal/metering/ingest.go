package metering

import (
	"bytes"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// maxFragments bounds the proven set above the watermark. An honest host needs a handful. What would go beyond it is
// not acknowledged and comes again, when what lies between has closed the gaps.
const maxFragments = 512

// Ingest takes in a host's segments in one transaction: checks them, stores them, and posts what they add to the
// bill. The acks name what the journal may let go of: what is committed, and what will never be accepted, with the
// reason. An error means nothing was taken and the agent sends again.
func Ingest(ctx context.Context, d *db.DB, host id.Host, segs []agentapi.Segment) ([]agentapi.UsageAck, error) {
	if len(segs) == 0 {
		return nil, nil
	}
	if len(segs) > agentapi.MaxSegments {
		return nil, fault.New(fault.TooLarge, "at most %d segments at a time", agentapi.MaxSegments)
	}
	keys, err := d.Q.AttestKeys(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("metering: attestation keys: %w", err)
	}
	checked := receive(host, keys, segs)
	var rs []*received
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rs = rs[:0]
		for _, c := range checked { // a retried transaction judges afresh
			r := *c
			rs = append(rs, &r)
		}
		return ingest(ctx, tx, host, rs)
	})
	if err != nil {
		return nil, fmt.Errorf("metering: ingest from %s: %w", host, err)
	}
	return acks(rs), nil
}

func ingest(ctx context.Context, tx *db.Tx, host id.Host, rs []*received) error {
	leases, err := lockOf(ctx, tx, host, rs)
	if err != nil {
		return err
	}
	anchors, err := anchorsOf(ctx, tx.Q, host, rs)
	if err != nil {
		return err
	}
	accepted, err := acceptedBefore(ctx, tx.Q, rs)
	if err != nil {
		return err
	}
	at, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	add := map[id.Lease]fresh{}
	for _, r := range rs {
		if r.refused == "" {
			r.decide(leases[r.lease], anchors, accepted, at.UnixMilli())
		}
		if r.refused == "" && !r.known {
			f := add[r.lease]
			f.intervals = append(f.intervals, Interval{r.StartMS, r.EndMS})
			f.energy += r.EnergyMJ
			add[r.lease] = f
		}
	}
	holdBack(leases, add, rs)
	if err := quarantine(ctx, tx, host, leases, rs); err != nil {
		return err
	}
	if err := store(ctx, tx, rs); err != nil {
		return err
	}
	touched := make([]*lease, 0, len(leases))
	for _, l := range sorted(leases) {
		if _, ok := add[l.ID]; ok || l.freezing {
			touched = append(touched, l)
		}
	}
	return charge(ctx, tx, touched, add)
}

// decide says what is to become of a signed segment. The first content accepted under a number stands.
func (r *received) decide(l *lease, anchors map[anchorKey]*agentapi.Anchor, accepted map[segmentKey][]byte, now int64) {
	if before, ok := accepted[r.key()]; ok && l != nil {
		if r.known = bytes.Equal(before, r.hash[:]); !r.known {
			r.refused = refusedConflict
		}
		return
	}
	r.refused = r.judge(l, anchors[anchorKey{r.BootID, r.Anchor}], now)
	if r.refused == "" {
		accepted[r.key()] = r.hash[:]
	}
}

// holdBack leaves out the segments of a lease whose proven time would lie in too many pieces.
func holdBack(leases map[id.Lease]*lease, add map[id.Lease]fresh, rs []*received) {
	for lid, f := range add {
		l := leases[lid]
		if next, _ := Charge(l.meter, f.intervals, l.windows, l.terms); len(next.Proven) <= max(maxFragments, len(l.meter.Proven)) {
			continue
		}
		delete(add, lid)
		for _, r := range rs {
			r.waits = r.waits || r.lease == lid && r.refused == "" && !r.known
		}
	}
}

// lockOf locks the meters of the host's leases that the segments name, in id order, and reads the leases.
func lockOf(ctx context.Context, tx *db.Tx, host id.Host, rs []*received) (map[id.Lease]*lease, error) {
	out := map[id.Lease]*lease{}
	var ids []pgtype.UUID
	for _, r := range rs {
		if _, seen := out[r.lease]; r.refused == "" && !seen {
			out[r.lease] = nil
			ids = append(ids, raw(r.lease))
		}
	}
	own, err := tx.Q.LeasesOfHost(ctx, ids, host)
	if err != nil {
		return nil, fmt.Errorf("leases of the host: %w", err)
	}
	ids = ids[:0]
	for _, l := range own {
		ids = append(ids, raw(l))
	}
	meters, err := tx.Q.LockMetersByID(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("lock meters: %w", err)
	}
	leases, err := withMeters(ctx, tx.Q, meters)
	if err != nil {
		return nil, err
	}
	clear(out)
	for _, l := range leases {
		out[l.ID] = l
	}
	return out, nil
}

func sorted(leases map[id.Lease]*lease) []*lease {
	out := make([]*lease, 0, len(leases))
	for _, l := range leases {
		out = append(out, l)
	}
	sortByID(out)
	return out
}

type anchorKey struct {
	boot   string
	number int64
}

func anchorsOf(ctx context.Context, q *dbq.Queries, host id.Host, rs []*received) (map[anchorKey]*agentapi.Anchor, error) {
	var boots []string
	var numbers []int64
	for _, r := range rs {
		if r.refused == "" {
			boots, numbers = append(boots, r.BootID), append(numbers, r.Anchor)
		}
	}
	rows, err := q.AnchorsOfHost(ctx, boots, numbers, host)
	if err != nil {
		return nil, fmt.Errorf("anchors: %w", err)
	}
	out := make(map[anchorKey]*agentapi.Anchor, len(rows))
	for _, a := range rows {
		out[anchorKey{a.BootID, a.Number}] = &agentapi.Anchor{BootID: a.BootID, Number: a.Number, BootMS: a.BootMs, ServerMS: a.ServerMs}
	}
	return out, nil
}

// acceptedBefore is the hash of each segment of rs that is stored already.
func acceptedBefore(ctx context.Context, q *dbq.Queries, rs []*received) (map[segmentKey][]byte, error) {
	var p dbq.KnownSegmentsParams
	for _, r := range rs {
		if r.refused == "" {
			p.Leases, p.Epochs = append(p.Leases, raw(r.lease)), append(p.Epochs, int32(r.Epoch))
			p.Boots, p.Seqs = append(p.Boots, r.BootID), append(p.Seqs, r.Seq)
		}
	}
	rows, err := q.KnownSegments(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("known segments: %w", err)
	}
	out := make(map[segmentKey][]byte, len(rows))
	for _, k := range rows {
		out[segmentKey{k.LeaseID, int(k.Epoch), k.BootID, k.Seq}] = k.PayloadHash
	}
	return out, nil
}

func store(ctx context.Context, tx *db.Tx, rs []*received) error {
	var p dbq.InsertSegmentsParams
	for _, r := range rs {
		if r.refused != "" || r.known || r.waits {
			continue
		}
		p.Leases, p.Epochs = append(p.Leases, raw(r.lease)), append(p.Epochs, int32(r.Epoch))
		p.Boots, p.Seqs = append(p.Boots, r.BootID), append(p.Seqs, r.Seq)
		p.Anchors, p.BootEnds = append(p.Anchors, r.Anchor), append(p.BootEnds, r.BootEndMS)
		p.Starts, p.Ends = append(p.Starts, r.StartMS), append(p.Ends, r.EndMS)
		p.Energies, p.Finals = append(p.Energies, r.EnergyMJ), append(p.Finals, r.Final)
		p.Hashes, p.Signatures = append(p.Hashes, r.hash[:]), append(p.Signatures, r.Signature)
	}
	if len(p.Leases) == 0 {
		return nil
	}
	if err := tx.Q.InsertSegments(ctx, p); err != nil {
		return fmt.Errorf("insert segments: %w", err)
	}
	return nil
}
