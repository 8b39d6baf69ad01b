package metering

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/merkle"
)

// ClusterProof is all that the cluster's bill depends on, as one moment saw it. The caller has checked that it may be
// seen. A cluster that was never rented out is fault.NotFound.
func (l *Leases) ClusterProof(ctx context.Context, cluster id.Cluster) (billproof.File, error) {
	return proof(ctx, l.d, func(ctx context.Context, q *dbq.Queries) (id.Cluster, []id.Lease, error) {
		ids, err := q.LeaseIDsOfCluster(ctx, cluster)
		return cluster, ids, err
	})
}

// LeaseProof is ClusterProof of one lease, for its renter and for the operator of its host; for others there is no such
// lease.
func (l *Leases) LeaseProof(ctx context.Context, org id.Org, lease id.Lease) (billproof.File, error) {
	return proof(ctx, l.d, func(ctx context.Context, q *dbq.Queries) (id.Cluster, []id.Lease, error) {
		p, err := q.LeaseParties(ctx, lease)
		if db.NoRows(err) || err == nil && org != p.RenterOrgID && org != p.HostOrgID {
			return id.Cluster{}, nil, fault.New(fault.NotFound, "there is no such lease")
		}
		return p.ClusterID, []id.Lease{lease}, err
	})
}

func proof(ctx context.Context, d *db.DB, of func(context.Context, *dbq.Queries) (id.Cluster, []id.Lease,
	error)) (billproof.File, error) {
	var f billproof.File
	err := d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) error {
		cluster, ids, err := of(ctx, q)
		if err != nil {
			return fmt.Errorf("metering: proof: %w", err)
		}
		if len(ids) == 0 {
			return fault.New(fault.NotFound, "nothing was rented")
		}
		if f, err = prove(ctx, q, cluster, ids); err != nil {
			return fmt.Errorf("metering: proof of %s: %w", cluster, err)
		}
		return nil
	})
	if err != nil {
		return billproof.File{}, err
	}
	return f, nil
}

func prove(ctx context.Context, q *dbq.Queries, cluster id.Cluster, ids []id.Lease) (billproof.File, error) {
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return billproof.File{}, err
	}
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return billproof.File{}, err
	}
	f := billproof.File{
		Version:  1,
		Cluster:  cluster.String(),
		MadeAt:   now.UTC().Truncate(time.Second),
		Currency: leases[0].Currency,
		Windows:  []billproof.Window{},
		Anchors:  []billproof.Anchor{},
	}
	for _, w := range leases[0].windows {
		if w.Billable().Len() == 0 {
			continue
		}
		f.Windows = append(f.Windows, billproof.Window{FromMS: w.OpenedMS, UntilMS: w.end()})
	}
	var hosts []pgtype.UUID
	for _, l := range leases {
		hosts = append(hosts, raw(l.HostID))
	}
	keys := map[id.Host][][]byte{}
	rows, err := q.AllAttestKeys(ctx, hosts)
	if err != nil {
		return f, err
	}
	for _, r := range rows {
		keys[r.HostID] = append(keys[r.HostID], r.AttestKey)
	}
	segments, err := signedSegments(ctx, q, ids)
	if err != nil {
		return f, err
	}
	anchors, err := q.AnchorsOfLeases(ctx, idList(ids...))
	if err != nil {
		return f, err
	}
	for _, a := range anchors {
		f.Anchors = append(f.Anchors, billproof.Anchor{Host: a.HostID.String(),
			Anchor: agentapi.Anchor{BootID: a.BootID, Number: a.Number, BootMS: a.BootMs, ServerMS: a.ServerMs}})
	}
	mine := map[string]bool{}
	for _, l := range leases {
		mine[l.ID.String()] = true
		e := billproof.Lease{
			ID:       l.ID.String(),
			Host:     l.HostID.String(),
			HostKeys: keys[l.HostID],
			Rank:     int(l.Rank),
			GPUs:     int(l.GPUCount),
			FromMS:   l.terms.Life.Start,
			SharePPM: l.terms.SharePPM,
			Segments: segments[l.ID],
			Billed:   l.meter.Posted,
			HostPart: l.meter.HostPosted,
			BilledMS: l.meter.PostedBilledMS,
			Settled:  l.settled(),
		}
		if slices.ContainsFunc(e.Segments, func(s billproof.Segment) bool { return s.Batch != nil }) {
			f.Version = max(f.Version, 2) // programs that only know version 1 go on verifying what they can
		}
		if slices.ContainsFunc(e.Segments, func(s billproof.Segment) bool { return s.Facts != nil }) {
			f.Version = billproof.Version
		}
		if l.ended() {
			e.UntilMS = l.terms.Life.End
		}
		for _, p := range l.terms.Prices {
			e.Prices = append(e.Prices, billproof.Price{FromMS: p.FromMS, Rate: p.Rate})
		}
		f.Leases = append(f.Leases, e)
	}
	taken := map[string]bool{}
	f.Entries, f.Batches, err = ledger.Charges(ctx, q, cluster.String(), func(t billproof.Tx) bool {
		lease, _, _ := strings.Cut(strings.TrimPrefix(t.Key, "usage:"), ":")
		keep := mine[lease] || taken[t.Corrects]
		taken[t.ID] = keep
		return keep
	})
	return f, err
}

// signedSegments are the leases' segments as their hosts signed them.
func signedSegments(ctx context.Context, q *dbq.Queries, ids []id.Lease) (map[id.Lease][]billproof.Segment, error) {
	rows, err := q.SignedSegments(ctx, idList(ids...))
	if err != nil {
		return nil, err
	}
	var inBatch []dbq.SignedSegmentsRow
	for _, r := range rows {
		if r.Batch != 0 {
			inBatch = append(inBatch, r)
		}
	}
	proofs, err := batchProofs(ctx, q, inBatch)
	if err != nil {
		return nil, err
	}
	out := map[id.Lease][]billproof.Segment{}
	for _, r := range rows {
		s := billproof.Segment{Segment: agentapi.Segment{
			Lease:     r.LeaseID.String(),
			Epoch:     int(r.Epoch),
			BootID:    r.BootID,
			Seq:       r.Seq,
			Anchor:    r.Anchor,
			BootEndMS: r.BootEndMs,
			StartMS:   r.StartMs,
			EndMS:     r.EndMs,
			EnergyMJ:  r.EnergyMj,
			Final:     r.Final,
			Signature: r.Signature,
		}}
		if s.Facts, err = factsOf(r.Facts); err != nil {
			return nil, err
		}
		if p, ok := proofs[place{r.Batch, r.BatchPosition}]; ok {
			s.Signature, s.Batch = p.signature, &p.in
		}
		out[r.LeaseID] = append(out[r.LeaseID], s)
	}
	return out, nil
}

// place is where a segment is among all batches.
type place struct {
	batch    int64
	position int16
}

// batchProof is what proves a segment that was signed in a batch.
type batchProof struct {
	signature []byte
	in        agentapi.InBatch
}

// batchesAtOnce bounds what is in memory of the hashes of a lease that ran for years.
const batchesAtOnce = 1000

// batchProofs makes the proofs of segments that were signed in batches. Of other leases in them only hashes are said,
// and no more than it takes.
func batchProofs(ctx context.Context, q *dbq.Queries, segs []dbq.SignedSegmentsRow) (map[place]batchProof, error) {
	positions := map[int64][]int16{}
	var ids []int64
	for _, s := range segs {
		if positions[s.Batch] == nil {
			ids = append(ids, s.Batch)
		}
		positions[s.Batch] = append(positions[s.Batch], s.BatchPosition)
	}
	out := make(map[place]batchProof, len(segs))
	for some := range slices.Chunk(ids, batchesAtOnce) {
		batches, err := q.SegmentBatches(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, b := range batches {
			hashes := make([][32]byte, len(b.Hashes)/sha256.Size)
			for i := range hashes {
				hashes[i] = [32]byte(b.Hashes[i*sha256.Size:])
			}
			for _, at := range positions[b.ID] {
				if int(at) < len(hashes) {
					out[place{b.ID, at}] = batchProof{b.Signature, agentapi.InBatch{
						Size:     len(hashes),
						Position: int(at),
						Path:     merkle.Path(hashes, int(at)),
					}}
				}
			}
		}
	}
	return out, nil
}
