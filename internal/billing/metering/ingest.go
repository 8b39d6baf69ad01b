package metering

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
)

// maxFragments bounds the proven set above the watermark. An honest host needs a handful. What would go beyond it is
// not acknowledged and comes again, when what lies between has closed the gaps.
const maxFragments = 512

// Delivery is what one host sends at a time.
type Delivery struct {
	Host     id.Host
	Segments []agentapi.Segment // at most agentapi.MaxSegments
	// Signature is the host's over the list, agentapi.SignBatch; nil where it signed each segment alone. Where it does not
	// hold, the segments' own count.
	Signature []byte
}

// IngestAll takes in what hosts deliver in one transaction: it checks the segments, stores them, and posts what they
// add to the bill. The acks are in the order of the deliveries. They name what the journal may delete: what is
// committed, and what will never be accepted, with the reason. After an error nothing was stored and the agents send
// again.
func IngestAll(ctx context.Context, d *db.DB, in []Delivery) ([][]agentapi.UsageAck, error) {
	began, out := time.Now(), make([][]agentapi.UsageAck, len(in))
	var hosts []pgtype.UUID
	for _, v := range in {
		if len(v.Segments) > agentapi.MaxSegments {
			return nil, fault.New(fault.TooLarge, "at most %d segments at a time", agentapi.MaxSegments)
		}
		if len(v.Segments) > 0 {
			hosts = append(hosts, raw(v.Host))
		}
	}
	if len(hosts) == 0 {
		return out, nil
	}
	keys, err := attestKeys(ctx, d.Q, hosts)
	if err != nil {
		return nil, err
	}
	checked := receive(in, keys)
	var rs []*received
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rs = rs[:0]
		for _, c := range checked { // a retried transaction judges afresh
			r := *c
			rs = append(rs, &r)
		}
		return ingest(ctx, tx, rs)
	})
	if err != nil {
		return nil, fmt.Errorf("ingest from %d hosts: %w", len(hosts), err)
	}
	count(began, rs)
	for i, v := range in {
		out[i] = acks(rs[:len(v.Segments)])
		rs = rs[len(v.Segments):]
	}
	return out, nil
}

// count records what became of a committed delivery.
func count(began time.Time, rs []*received) {
	var accepted, known, refused int
	for _, r := range rs {
		switch {
		case r.refused != "":
			refused++
		case r.known:
			known++
		case !r.waits: // what waits is not acknowledged and comes again
			accepted++
		}
	}
	metrics.Ingest(began, accepted, known, refused)
}

func attestKeys(ctx context.Context, q *dbq.Queries, hosts []pgtype.UUID) (map[id.Host][][]byte, error) {
	rows, err := q.AttestKeys(ctx, hosts)
	if err != nil {
		return nil, fmt.Errorf("attestation keys: %w", err)
	}
	keys := make(map[id.Host][][]byte, len(hosts))
	for _, r := range rows {
		keys[r.HostID] = append(keys[r.HostID], r.AttestKey)
	}
	return keys, nil
}

func ingest(ctx context.Context, tx *db.Tx, rs []*received) error {
	leases, err := lockOf(ctx, tx, rs)
	if err != nil {
		return err
	}
	anchors, accepted, now, err := readKnown(ctx, tx.Q, rs)
	if err != nil {
		return err
	}
	add := map[id.Lease]fresh{}
	for _, r := range rs {
		l := leases[r.lease]
		if l != nil && l.HostID != r.host {
			l = nil
		}
		if r.refused == "" {
			r.decide(l, anchors, accepted, now)
		}
		if r.refused == "" && !r.known {
			f := add[r.lease]
			f.intervals = append(f.intervals, Interval{Start: r.StartMS, End: r.EndMS})
			f.energy += r.EnergyMJ
			add[r.lease] = f
		}
	}
	holdBack(leases, add, rs)
	if err := quarantine(ctx, tx, leases, rs); err != nil {
		return err
	}
	touched := make([]*lease, 0, len(leases))
	for _, l := range sorted(leases) {
		if _, ok := add[l.ID]; ok || l.freezing {
			touched = append(touched, l)
		}
	}
	was := postedOf(touched)
	if err := charge(ctx, tx, touched, add, rs, inSteps); err != nil || postedOf(touched) == was {
		return err
	}
	notifySpent(ctx, tx, touched)
	return nil
}

// decide returns what becomes of a signed segment. The first content accepted under a number stands.
func (r *received) decide(l *lease, anchors map[anchorKey]*agentapi.Anchor, accepted map[segmentKey][]byte, now int64) {
	if before, ok := accepted[r.key()]; ok && l != nil {
		if r.known = bytes.Equal(before, r.hash[:]); !r.known {
			r.refused = refusedConflict
		}
		return
	}
	anchor := anchors[anchorKey{r.host, r.BootID, r.Anchor}]
	r.refused = r.judge(l, anchor, now)
	if r.refused == "" {
		r.anchor = *anchor
		accepted[r.key()] = r.hash[:]
	}
}

// holdBack leaves out the segments of a lease whose proven time would lie in too many pieces.
func holdBack(leases map[id.Lease]*lease, add map[id.Lease]fresh, rs []*received) {
	for lid, f := range add {
		l := leases[lid]
		if next, _ := Charge(l.meter, f.intervals, l.windows, l.terms); len(next.Proven) <= max(maxFragments,
			len(l.meter.Proven)) {
			continue
		}
		delete(add, lid)
		for _, r := range rs {
			r.waits = r.waits || r.lease == lid && r.refused == "" && !r.known
		}
	}
}

// lockOf locks the meters of the leases that the segments name and that are of their hosts, in id order, and reads the
// leases.
func lockOf(ctx context.Context, tx *db.Tx, rs []*received) (map[id.Lease]*lease, error) {
	type claim struct { // a host may name another's lease
		lease id.Lease
		host  id.Host
	}
	seen := map[claim]bool{}
	var ids, hosts []pgtype.UUID
	for _, r := range rs {
		if c := (claim{r.lease, r.host}); r.refused == "" && !seen[c] {
			seen[c] = true
			ids, hosts = append(ids, raw(r.lease)), append(hosts, raw(r.host))
		}
	}
	meters, err := tx.Q.LockMetersOfHosts(ctx, ids, hosts)
	if err != nil {
		return nil, fmt.Errorf("lock meters: %w", err)
	}
	leases, err := withMeters(ctx, tx.Q, meters, true)
	if err != nil {
		return nil, err
	}
	out := make(map[id.Lease]*lease, len(leases))
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
	host   id.Host
	boot   string
	number int64
}

// readKnown reads what the segments are judged by: the anchors that they name, the hashes of those that are stored
// already, and PostgreSQL's clock, unix ms. It also draws the batches' numbers. Call it after the meters are locked.
func readKnown(ctx context.Context, q *dbq.Queries,
	rs []*received) (map[anchorKey]*agentapi.Anchor, map[segmentKey][]byte, int64, error) {
	named := map[anchorKey]bool{}
	var a struct {
		hosts   []pgtype.UUID
		boots   []string
		numbers []int64
	}
	var k dbq.KnownSegmentsParams
	batches := batchesOf(rs)
	var last *received
	for _, r := range rs {
		if r.refused != "" {
			continue
		}
		if n := (anchorKey{r.host, r.BootID, r.Anchor}); !named[n] {
			named[n] = true
			a.hosts, a.boots, a.numbers = append(a.hosts, raw(r.host)), append(a.boots, r.BootID), append(a.numbers, r.Anchor)
		}
		if last != nil && r.follows(last) {
			k.Lasts[len(k.Lasts)-1] = r.Seq
		} else {
			k.Leases, k.Epochs = append(k.Leases, raw(r.lease)), append(k.Epochs, int32(r.Epoch))
			k.Boots, k.Firsts, k.Lasts = append(k.Boots, r.BootID), append(k.Firsts, r.Seq), append(k.Lasts, r.Seq)
		}
		last = r
	}
	var anchorRows []dbq.TimeAnchor
	var known []dbq.KnownSegmentsRow
	var now time.Time
	var numbers []int64
	queued := &pgx.Batch{}
	db.Queue(queued, func(ctx context.Context, q *dbq.Queries) (err error) {
		anchorRows, err = q.AnchorsOfHosts(ctx, a.hosts, a.boots, a.numbers)
		return err
	})
	db.Read(queued, &known, (*dbq.Queries).KnownSegments, k)
	db.ReadNow(queued, &now)
	if len(batches) > 0 {
		db.Read(queued, &numbers, (*dbq.Queries).NewBatchNumbers, int32(len(batches)))
	}
	if err := db.Send(ctx, q, queued); err != nil {
		return nil, nil, 0, fmt.Errorf("anchors and known segments: %w", err)
	}
	if len(numbers) != len(batches) {
		return nil, nil, 0, fmt.Errorf("%d numbers for %d batches", len(numbers), len(batches))
	}
	for i, b := range batches {
		b.id = numbers[i]
	}
	anchors := make(map[anchorKey]*agentapi.Anchor, len(anchorRows))
	for _, r := range anchorRows {
		anchors[anchorKey{r.HostID, r.BootID, r.Number}] = &agentapi.Anchor{
			BootID:   r.BootID,
			Number:   r.Number,
			BootMS:   r.BootMs,
			ServerMS: r.ServerMs,
		}
	}
	accepted := make(map[segmentKey][]byte, len(known)+len(rs))
	for _, r := range known {
		accepted[segmentKey{r.LeaseID, int(r.Epoch), r.BootID, r.Seq}] = r.PayloadHash
	}
	return anchors, accepted, now.UnixMilli(), nil
}

// follows reports whether r is the segment after before.
func (r *received) follows(before *received) bool {
	return r.Seq == before.Seq+1 && r.lease == before.lease && r.Epoch == before.Epoch && r.BootID == before.BootID
}

// queueSegments queues the writes of the segments that are accepted, and of the lists that were signed as a whole those
// that hold any of them.
func queueSegments(b *pgx.Batch, rs []*received) error {
	var p dbq.InsertSegmentsParams
	var lists struct {
		ids                []int64
		signatures, hashes [][]byte
	}
	stored := map[*batch]bool{}
	for _, r := range rs {
		if r.refused != "" || r.known || r.waits {
			continue
		}
		p.Leases, p.Epochs = append(p.Leases, raw(r.lease)), append(p.Epochs, int32(r.Epoch))
		p.Boots, p.Seqs = append(p.Boots, r.BootID), append(p.Seqs, r.Seq)
		p.Anchors, p.BootEnds = append(p.Anchors, r.Anchor), append(p.BootEnds, r.BootEndMS)
		p.Starts, p.Ends = append(p.Starts, r.StartMS), append(p.Ends, r.EndMS)
		p.Energies, p.Finals = append(p.Energies, r.EnergyMJ), append(p.Finals, r.Final)
		p.Hashes = append(p.Hashes, r.hash[:])
		facts, err := factsJSON(r.Facts)
		if err != nil {
			return err
		}
		p.Ups, p.Facts = append(p.Ups, r.WasUp()), append(p.Facts, facts)
		if list := r.batch; list == nil {
			p.Signatures, p.Batches, p.Positions = append(p.Signatures, r.Signature), append(p.Batches, 0),
				append(p.Positions, 0)
		} else {
			p.Signatures, p.Batches, p.Positions = append(p.Signatures, []byte{}), append(p.Batches, list.id),
				append(p.Positions, int16(r.position))
			if !stored[list] {
				stored[list] = true
				lists.ids = append(lists.ids, list.id)
				lists.signatures, lists.hashes = append(lists.signatures, list.signature), append(lists.hashes, list.hashes)
			}
		}
	}
	if len(p.Leases) == 0 {
		return nil
	}
	if len(lists.ids) > 0 {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.InsertSegmentBatches(ctx, lists.ids, lists.signatures, lists.hashes)
		})
	}
	queueDeaf(b, rs)
	db.Write(b, (*dbq.Queries).InsertSegments, p)
	return nil
}

// queueDeaf queues the write of the deaf spans of the segments that are accepted.
func queueDeaf(b *pgx.Batch, rs []*received) {
	var p dbq.InsertDeafSpansParams
	for _, r := range rs {
		if r.refused != "" || r.known || r.waits {
			continue
		}
		ranks, spans := deafSpans(r.Segment, r.anchor)
		for i, s := range spans {
			p.Leases, p.Epochs = append(p.Leases, raw(r.lease)), append(p.Epochs, int32(r.Epoch))
			p.Peers, p.FromMs, p.ToMs = append(p.Peers, int32(ranks[i])), append(p.FromMs, s.Start), append(p.ToMs, s.End)
		}
	}
	if len(p.Leases) > 0 {
		db.Write(b, (*dbq.Queries).InsertDeafSpans, p)
	}
}
