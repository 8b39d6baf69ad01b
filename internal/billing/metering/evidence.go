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

// ClusterProof returns all that the cluster's bill depends on, as one moment saw it. The caller has checked that it may
// be seen. A cluster that was never rented out is fault.NotFound.
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
			return id.Cluster{}, nil, fault.New(fault.NotFound, "lease not found")
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
			return fmt.Errorf("read proof: %w", err)
		}
		if len(ids) == 0 {
			return fault.New(fault.NotFound, "nothing was rented")
		}
		if f, err = prove(ctx, q, cluster, ids); err != nil {
			return fmt.Errorf("read proof of %s: %w", cluster, err)
		}
		return nil
	})
	if err != nil {
		return billproof.File{}, err
	}
	return f, nil
}

// prove reads the proof of leases of one cluster.
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
		Windows:  provenWindows(leases[0].windows),
	}
	keys, err := hostKeys(ctx, q, leases)
	if err != nil {
		return f, err
	}
	segments, err := signedSegments(ctx, q, ids)
	if err != nil {
		return f, err
	}
	if f.Anchors, err = provenAnchors(ctx, q, ids); err != nil {
		return f, err
	}
	for _, l := range leases {
		p := provenLease(l)
		p.HostKeys, p.Segments = keys[l.HostID], segments[l.ID]
		f.Version = max(f.Version, versionOf(p.Segments))
		f.Leases = append(f.Leases, p)
	}
	f.Entries, f.Batches, err = ledger.Charges(ctx, q, cluster.String(), chargesOf(ids))
	return f, err
}

// provenWindows returns the windows of which some time may be billed.
func provenWindows(windows []Window) []billproof.Window {
	out := []billproof.Window{}
	for _, w := range windows {
		if w.Billable().Len() > 0 {
			out = append(out, billproof.Window{FromMS: w.OpenedMS, UntilMS: w.end()})
		}
	}
	return out
}

// hostKeys returns all keys with which the leases' hosts ever signed.
func hostKeys(ctx context.Context, q *dbq.Queries, leases []*lease) (map[id.Host][][]byte, error) {
	hosts := make([]pgtype.UUID, len(leases))
	for i, l := range leases {
		hosts[i] = raw(l.HostID)
	}
	rows, err := q.AllAttestKeys(ctx, hosts)
	if err != nil {
		return nil, fmt.Errorf("read keys of hosts: %w", err)
	}
	keys := map[id.Host][][]byte{}
	for _, r := range rows {
		keys[r.HostID] = append(keys[r.HostID], r.AttestKey)
	}
	return keys, nil
}

// provenAnchors returns the time anchors that the leases' segments name.
func provenAnchors(ctx context.Context, q *dbq.Queries, ids []id.Lease) ([]billproof.Anchor, error) {
	rows, err := q.AnchorsOfLeases(ctx, idList(ids...))
	if err != nil {
		return nil, fmt.Errorf("read anchors: %w", err)
	}
	out := make([]billproof.Anchor, len(rows))
	for i, a := range rows {
		out[i] = billproof.Anchor{Host: a.HostID.String(),
			Anchor: agentapi.Anchor{BootID: a.BootID, Number: a.Number, BootMS: a.BootMs, ServerMS: a.ServerMs}}
	}
	return out, nil
}

// provenLease returns a lease's terms and charge, without keys and segments.
func provenLease(l *lease) billproof.Lease {
	p := billproof.Lease{
		ID:       l.ID.String(),
		Host:     l.HostID.String(),
		Rank:     int(l.Rank),
		GPUs:     int(l.GPUCount),
		FromMS:   l.terms.Life.Start,
		SharePPM: l.terms.SharePPM,
		Billed:   l.meter.Posted,
		HostPart: l.meter.HostPosted,
		BilledMS: l.meter.PostedBilledMS,
		Settled:  l.settled(),
	}
	if l.ended() {
		p.UntilMS = l.terms.Life.End
	}
	for _, x := range l.terms.Prices {
		p.Prices = append(p.Prices, billproof.Price{FromMS: x.FromMS, Rate: x.Rate})
	}
	return p
}

// versionOf returns the first version of the file that can hold the segments: programs that know only earlier ones
// continue to verify what they can.
func versionOf(segments []billproof.Segment) int {
	version := 1
	for _, s := range segments {
		if s.Facts != nil {
			return billproof.Version
		}
		if s.Batch != nil {
			version = 2
		}
	}
	return version
}

// chargesOf returns a function that reports of a cluster's entries, oldest first, whether one charges for one of the
// leases or corrects such a charge.
func chargesOf(ids []id.Lease) func(billproof.Tx) bool {
	mine, kept := map[string]bool{}, map[string]bool{}
	for _, l := range ids {
		mine[l.String()] = true
	}
	return func(t billproof.Tx) bool {
		lease, _, _ := strings.Cut(strings.TrimPrefix(t.Key, "usage:"), ":")
		kept[t.ID] = mine[lease] || kept[t.Corrects]
		return kept[t.ID]
	}
}

// signedSegments returns the leases' segments as their hosts signed them.
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

// batchProofs makes the proofs of segments that were signed in batches. They contain only hashes of other leases'
// segments, and no more than needed.
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
