package metering

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// A run is a start of a lease on a boot of its host; its segments are numbered. The meter holds the run that it took
// segments of last and the highest number that is stored of it, so higher numbers of that run are new without a look
// into the table. That holds because whatever stores a segment has the meter locked and writes both in one transaction.
// A replica of an older version does not write the number; then the table's key refuses the segments, and IngestAll
// looks for all of them.

// runKey names a run within its lease: half of a hash.
type runKey [16]byte

// run is a run of a lease.
type run struct {
	lease id.Lease
	key   runKey
}

func (r *received) run() run {
	b := make([]byte, 0, 4+maxBootID)
	b = append(binary.BigEndian.AppendUint32(b, uint32(r.Epoch)), r.BootID...) // in range, or the segment is refused
	sum := sha256.Sum256(b)
	return run{r.lease, runKey(sum[:])}
}

// lookups is what must be read of the stored segments to judge those that have arrived.
type lookups struct {
	known dbq.KnownSegmentsParams // numbers that may be stored already
	// Runs of which the highest number is not known.
	runs   []run
	leases []pgtype.UUID
	epochs []int32
	boots  []string
}

// lookupsOf returns what must be looked up, and the highest stored numbers that the locked meters know. With all, it
// does not rely on the meters. Segments of leases without a locked meter are not looked for: they are refused.
func lookupsOf(rs []*received, meters []dbq.LeaseMeter, all bool) (out lookups, last map[run]int64) {
	locked := make(map[id.Lease]bool, len(meters))
	last = make(map[run]int64, len(meters))
	for _, m := range meters {
		locked[m.LeaseID] = true
		if m.RunSeq > 0 && !all {
			last[run{m.LeaseID, m.RunKey.Bytes}] = m.RunSeq
		}
	}
	asked := map[run]bool{}
	var before *received
	for _, r := range rs {
		if r.refused != "" || !locked[r.lease] {
			continue
		}
		k := r.run()
		highest, ok := last[k]
		if ok && r.Seq > highest {
			continue
		}
		if !ok && !asked[k] {
			asked[k] = true
			out.runs, out.leases = append(out.runs, k), append(out.leases, raw(k.lease))
			out.epochs, out.boots = append(out.epochs, int32(r.Epoch)), append(out.boots, r.BootID)
		}
		p := &out.known
		if before != nil && r.follows(before) {
			p.Lasts[len(p.Lasts)-1] = r.Seq
		} else {
			p.Leases, p.Epochs = append(p.Leases, raw(r.lease)), append(p.Epochs, int32(r.Epoch))
			p.Boots, p.Firsts, p.Lasts = append(p.Boots, r.BootID), append(p.Firsts, r.Seq), append(p.Lasts, r.Seq)
		}
		before = r
	}
	return out, last
}

// queue queues the reads of what must be looked up, if there is anything.
func (l lookups) queue(b *pgx.Batch, known *[]dbq.KnownSegmentsRow, lasts *[]int64) {
	if len(l.known.Leases) > 0 {
		db.Read(b, known, (*dbq.Queries).KnownSegments, l.known)
	}
	if len(l.runs) > 0 {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
			*lasts, err = q.LastNumbers(ctx, l.leases, l.epochs, l.boots)
			return err
		})
	}
}

// follows reports whether r is the segment after before.
func (r *received) follows(before *received) bool {
	return r.Seq == before.Seq+1 && r.lease == before.lease && r.Epoch == before.Epoch && r.BootID == before.BootID
}

// noteStored writes on the leases which run the last segment that is accepted of each belongs to, and the highest
// number of that run.
func noteStored(k *known, rs []*received) {
	for _, r := range rs {
		if !r.accepted() {
			continue
		}
		n := r.run()
		k.last[n] = max(k.last[n], r.Seq)
		k.leases[r.lease].run, k.leases[r.lease].runSeq = n.key, k.last[n]
	}
}

func uuidOf(k runKey) pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }
