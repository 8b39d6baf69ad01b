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
	take := func(all bool) error {
		return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			rs = rs[:0]
			for _, c := range checked { // a retried transaction judges afresh
				r := *c
				rs = append(rs, &r)
			}
			return ingest(ctx, tx, rs, all)
		})
	}
	if err = take(false); db.IsUnique(err, "") { // a meter did not know what is stored
		err = take(true)
	}
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

// ingest takes in segments. With all, it looks for each of them among those that are stored, whatever the meters say.
func ingest(ctx context.Context, tx *db.Tx, rs []*received, all bool) error {
	k, err := readKnown(ctx, tx, rs, all)
	if err != nil {
		return err
	}
	add := map[id.Lease]fresh{}
	for _, r := range rs {
		l := k.leases[r.lease]
		if l != nil && l.HostID != r.host {
			l = nil
		}
		if r.refused == "" {
			r.decide(l, k)
		}
		if r.refused == "" && !r.known {
			f := add[r.lease]
			f.intervals = append(f.intervals, Interval{Start: r.StartMS, End: r.EndMS})
			f.energy += r.EnergyMJ
			add[r.lease] = f
		}
	}
	holdBack(k.leases, add, rs)
	if err := quarantine(ctx, tx, k.leases, rs); err != nil {
		return err
	}
	noteStored(k, rs)
	touched := make([]*lease, 0, len(k.leases))
	for _, l := range sorted(k.leases) {
		if _, ok := add[l.ID]; ok || l.freezing {
			touched = append(touched, l)
		}
	}
	was, writes := postedOf(touched), &pgx.Batch{}
	if err := queueCharge(ctx, tx, writes, touched, add, rs, inSteps); err != nil {
		return err
	}
	if writes.Len() > 0 {
		tx.Last = writes
	}
	if postedOf(touched) != was {
		notifySpent(ctx, tx, touched)
	}
	return nil
}

// decide returns what becomes of a signed segment. The first content accepted under a number stands.
func (r *received) decide(l *lease, k *known) {
	if before, ok := k.accepted[r.key()]; ok && l != nil {
		if r.known = bytes.Equal(before, r.hash[:]); !r.known {
			r.refused = refusedConflict
		}
		return
	}
	anchor := k.anchors[anchorKey{r.host, r.BootID, r.Anchor}]
	r.refused = r.judge(l, anchor, k.now)
	if r.refused == "" {
		r.anchor = *anchor
		k.accepted[r.key()] = r.hash[:]
	}
}

// holdBack leaves out the segments of a lease whose proven time would lie in too many pieces.
func holdBack(leases map[id.Lease]*lease, add map[id.Lease]fresh, rs []*received) {
	for lid, f := range add {
		l := leases[lid]
		if len(l.meter.Proven)+len(f.intervals) <= maxFragments {
			continue // whatever they touch, they make no more pieces
		}
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

// lockOf locks the meters of the leases that the segments name and that are of their hosts, in id order.
func lockOf(ctx context.Context, tx *db.Tx, rs []*received) ([]dbq.LeaseMeter, error) {
	type claim struct { // a host may name another's lease
		lease id.Lease
		host  id.Host
	}
	seen := make(map[claim]bool, len(rs))
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
	return meters, nil
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

// known is what segments are judged by.
type known struct {
	leases   map[id.Lease]*lease
	anchors  map[anchorKey]*agentapi.Anchor // that they name
	accepted map[segmentKey][]byte          // the hashes of those that are stored, as far as they matter
	last     map[run]int64                  // the highest number that is stored of the segments' runs
	now      int64                          // PostgreSQL's clock, unix ms; 0 if there are no leases
}

// readKnown locks the meters of the segments' leases and then reads what the segments are judged by. It also draws the
// batches' numbers.
func readKnown(ctx context.Context, tx *db.Tx, rs []*received, all bool) (*known, error) {
	meters, err := lockOf(ctx, tx, rs)
	if err != nil {
		return nil, err
	}
	var rows struct {
		anchors []dbq.TimeAnchor
		known   []dbq.KnownSegmentsRow
		lasts   []int64
		numbers []int64
	}
	named, batches := namedAnchors(rs), batchesOf(rs)
	look, last := lookupsOf(rs, meters, all)
	b := &pgx.Batch{}
	leases := queueWithMeters(b, meters, true)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		rows.anchors, err = q.AnchorsOfHosts(ctx, named.hosts, named.boots, named.numbers)
		return err
	})
	look.queue(b, &rows.known, &rows.lasts)
	if len(batches) > 0 {
		db.Read(b, &rows.numbers, (*dbq.Queries).NewBatchNumbers, int32(len(batches)))
	}
	if err := tx.Send(ctx, b); err != nil {
		return nil, fmt.Errorf("leases, anchors and known segments: %w", err)
	}
	if len(rows.numbers) != len(batches) {
		return nil, fmt.Errorf("%d numbers for %d batches", len(rows.numbers), len(batches))
	}
	if len(rows.lasts) != len(look.runs) {
		return nil, fmt.Errorf("the highest numbers of %d of %d runs", len(rows.lasts), len(look.runs))
	}
	for i, b := range batches {
		b.id = rows.numbers[i]
	}
	of, err := leases()
	if err != nil {
		return nil, err
	}
	k := &known{
		leases:   make(map[id.Lease]*lease, len(of)),
		anchors:  make(map[anchorKey]*agentapi.Anchor, len(rows.anchors)),
		accepted: make(map[segmentKey][]byte, len(rows.known)+len(rs)),
		last:     last,
	}
	for _, l := range of {
		k.leases[l.ID], k.now = l, l.readAt // the same of all
	}
	for _, r := range rows.anchors {
		k.anchors[anchorKey{r.HostID, r.BootID, r.Number}] = anchorOf(r)
	}
	for _, r := range rows.known {
		k.accepted[segmentKey{r.LeaseID, int(r.Epoch), r.BootID, r.Seq}] = r.PayloadHash
	}
	for i, n := range rows.lasts {
		k.last[look.runs[i]] = n
	}
	return k, nil
}

// anchorList is keys of anchors as query parameters.
type anchorList struct {
	hosts   []pgtype.UUID
	boots   []string
	numbers []int64
}

// namedAnchors returns the anchors that segments name, each once.
func namedAnchors(rs []*received) (out anchorList) {
	seen := map[anchorKey]bool{}
	for _, r := range rs {
		if n := (anchorKey{r.host, r.BootID, r.Anchor}); r.refused == "" && !seen[n] {
			seen[n] = true
			out.hosts, out.boots = append(out.hosts, raw(r.host)), append(out.boots, r.BootID)
			out.numbers = append(out.numbers, r.Anchor)
		}
	}
	return out
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
		if !r.accepted() {
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
		if !r.accepted() {
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
