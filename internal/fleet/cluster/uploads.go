package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// A run ends on its host in two steps. When its containers are gone and its GPUs are clean, others may rent the GPUs.
// Its host may still upload what it wrote to buckets and volumes then; that keeps only the disk with these data, until
// nothing is left. A host whose agent does not report the first step keeps the GPUs until the second one.

const (
	// maxUploads is for how many leases a host may upload whose GPUs are free, and maxOwnUploads for how many of one
	// organisation: each has files and processes on the host. A lease beyond these limits keeps its GPUs meanwhile, and
	// that counts against its renter. So there is room for moreUploads if each is the only one of its organisation: two
	// organisations that take all the room do not make the others' leases count.
	maxUploads, maxOwnUploads, moreUploads = 16, 8, 16

	// reasonUploading is the reason in start_hold of GPUs, or the disk of some, that were held for uploads.
	reasonUploading = "uploading"
)

// clean reports whether the report says for the first time that an ended lease needs its GPUs no more.
func (r leaseReport) clean() bool {
	return r.row.LeaseEndedAt != nil && r.row.LeaseGoneAt == nil && r.row.GpusFreeAt == nil && !r.gone && r.now != nil &&
		r.now.GPUsFree
}

// admitUploads decides for which leases of a report their hosts may go on to upload after their claims have ended.
func admitUploads(all []leaseReport) {
	host, own := int32(0), map[id.Org]int32{}
	for i := range all {
		r := &all[i]
		r.freesGPUs = r.clean() && roomToUpload(r.row.Uploads+host, r.row.OwnUploads+own[r.row.RenterOrgID])
		if r.freesGPUs {
			host++
			own[r.row.RenterOrgID]++
		}
	}
}

// roomToUpload reports whether a host that uploads for so many leases, of which some are of the same organisation, may
// upload for one more.
func roomToUpload(all, own int32) bool {
	if own == 0 {
		return all < maxUploads+moreUploads
	}
	return all < maxUploads && own < maxOwnUploads
}

// freeGPUs ends the claims of an ended lease for which its host uploads.
func (rp *reports) freeGPUs(n *node) {
	rp.countUpload(n)
	n.gpusFree = &rp.now
	rp.out.freed = append(rp.out.freed, n)
	rp.out.addWrite(func(ctx context.Context, w *writer) error {
		return metering.LeaseGPUsFree(ctx, w.tx, n.LeaseID, rp.spec.ScratchGB)
	})
}

// freeLost is freeGPUs for a lease whose rank moved to another host.
func (rp *reports) freeLost(l id.Lease) {
	i := slices.IndexFunc(rp.lost, func(r dbq.LostLeasesRow) bool { return r.LostLease == l && r.GpusFreeAt == nil })
	if i < 0 {
		return
	}
	rp.lost[i].GpusFreeAt = &rp.now
	rp.out.freed = append(rp.out.freed, &node{Node: dbq.Node{LeaseID: l, HostID: rp.lost[i].LostHost}})
	rp.out.addWrite(func(ctx context.Context, w *writer) error {
		return metering.LeaseGPUsFree(ctx, w.tx, l, rp.spec.ScratchGB)
	})
}

// countUpload counts the time for which an ended lease held its GPUs, usually because its host uploaded what it wrote,
// or afterwards the disk that the upload kept, as the GPUs that it is worth. Only time in which the host reported
// counts. A lease that had nothing to upload may have a slow host: then the operator excuses it, as it does a failed
// start.
func (rp *reports) countUpload(n *node) {
	if n.ended == nil || rp.row.RunningAt == nil || hostsOwn(lifecycle.Reason(n.Reason)) {
		return
	}
	from, free, thousandths := *n.ended, n.ended.Add(market.FreeUpload), 1000*int64(len(n.gpus))
	if n.gpusFree != nil {
		from, thousandths = *n.gpusFree, n.flushGPUs
	}
	until := earliest(earliest(rp.now, n.status.ReportedAt), from.Add(market.UploadLimit))
	span := interval.Span{Start: max(from.UnixMilli(), free.UnixMilli()), End: until.UnixMilli()}
	if span.End <= span.Start || thousandths == 0 {
		return
	}
	all := int64(0)
	for _, m := range rp.members.nodes {
		all += int64(len(m.gpus))
	}
	ms := max(0, span.Len()-rp.members.deaf(n).Clip(span).Len())
	e := endedStart{row: dbq.InsertStartHoldParams{
		OrgID: rp.row.OrgID, ClusterID: rp.row.ID, EndedAt: time.UnixMilli(span.End), Reason: reasonUploading,
		HeldMs: span.Len() * thousandths / 1000, GPUMs: ms * thousandths / 1000,
		Value: int64(fairness.StartValue(rp.row.Rate, ms)) * thousandths / (1000 * max(1, all)),
	}}
	if !writesData(rp.spec) {
		e.excusedBy, e.rest.gpuMS, e.rest.value = n.operator, e.row.GPUMs, e.row.Value
	}
	rp.out.startsEnded = append(rp.out.startsEnded, e)
}

// writesData reports whether nodes of a spec may have something to upload after their end.
func writesData(s market.Spec) bool {
	for _, m := range s.Volumes() {
		if m.Mode != agentapi.MountRO && !m.Lazy {
			return true
		}
	}
	for _, m := range s.Buckets() {
		if m.Mode != agentapi.MountRO {
			return true
		}
	}
	return false
}

// uploadingOf returns since when a host uploads for an ended node; nil if it does not. reported: it has reported what
// is left of the uploads.
func uploadingOf(n dbq.ClusterNodesRow, reported bool) *client.Uploading {
	switch {
	case n.LeaseEndedAt == nil, n.LeaseGoneAt != nil:
		return nil
	case n.GpusFreeAt != nil:
		return &client.Uploading{Since: *n.GpusFreeAt, EndsBy: n.GpusFreeAt.Add(market.UploadLimit), GPUsFree: true}
	case reported:
		return &client.Uploading{Since: *n.LeaseEndedAt, EndsBy: n.LeaseEndedAt.Add(market.UploadLimit)}
	}
	return nil
}
