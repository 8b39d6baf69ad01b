package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
)

// The most that the smaller parts of a desired state take, in bytes, if the whole is too large.
const (
	maxEnding = 24 << 10
	maxErases = 8 << 10
)

// unsendable is a lease that its host cannot get, and why.
type unsendable struct {
	cluster id.Cluster
	lease   id.Lease
	reason  lifecycle.Reason
	why     string
}

// fitState makes a desired state take at most limit bytes. Leases are admitted so that they all fit; this is for older
// ones, and for links that carry less. It leaves out folders that can be deleted later, then the largest of the leases
// whose command has not been released, and returns these. ok is false if that does not suffice.
func fitState(d *agentapi.Desired, limit int) (out []agentapi.LeaseSpec, ok bool) {
	size := agentapi.SizeOf(d)
	if size <= limit {
		return nil, true
	}
	d.SharedErase = smallest(d.SharedErase, maxErases)
	d.Ending = smallest(d.Ending, maxEnding)
	size = agentapi.SizeOf(d)
	for size > limit {
		largest, at := 0, -1
		for i, l := range d.Leases {
			if n := agentapi.SizeOf(l); !l.Go && n > largest {
				largest, at = n, i
			}
		}
		if at < 0 {
			return out, false
		}
		out = append(out, d.Leases[at])
		d.Leases = slices.Delete(d.Leases, at, at+1)
		size -= largest
	}
	return out, true
}

// smallest returns the smallest of the items that fit into limit bytes, in their order.
func smallest[T any](items []T, limit int) []T {
	type sized struct{ at, size int }
	sizes := make([]sized, len(items))
	for i := range items {
		sizes[i] = sized{i, agentapi.SizeOf(items[i])}
	}
	slices.SortStableFunc(sizes, func(a, b sized) int { return cmp.Compare(a.size, b.size) })
	var keep []int
	for _, s := range sizes {
		if limit -= s.size; limit < 0 {
			break
		}
		keep = append(keep, s.at)
	}
	slices.Sort(keep)
	out := make([]T, len(keep))
	for i, at := range keep {
		out[i] = items[at]
	}
	return out
}

// refuse ends the starts of leases that their host cannot get. What has started goes on.
func (hs *Hosts) refuse(ctx context.Context, all []unsendable) error {
	var errs []error
	for _, u := range all {
		hs.log.Error("a host cannot get a lease", "cluster", u.cluster, "lease", u.lease, "why", u.why)
		err := hs.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return hs.machine.alter(ctx, tx, u.cluster, func(x *lockedCluster) error {
				if n := x.members.byLease(u.lease); n != nil && n.ended == nil && x.row.GoAt == nil {
					x.life.step(n, lifecycle.NodeReportsFailed, u.reason, u.why)
				}
				return nil
			})
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("refuse %s: %w", u.lease, err))
		}
	}
	return errors.Join(errs...)
}
