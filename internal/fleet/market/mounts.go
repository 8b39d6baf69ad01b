package market

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db/dbq"
)

func isBucket(m Mount) bool { return !m.Bucket.IsZero() }
func isShared(m Mount) bool { return m.Shared != "" }
func isVolume(m Mount) bool { return !isBucket(m) && !isShared(m) }

// Volumes returns the volumes that the spec mounts.
func (s Spec) Volumes() (out []volume.Mount) {
	for i, m := range s.Mounts {
		if isVolume(m) {
			out = append(out, volume.Mount{Volume: m.Volume, Mode: m.Mode, Lazy: m.Lazy,
				At: fmt.Sprintf("mounts[%d].volume", i)})
		}
	}
	return out
}

// Buckets returns the buckets that the spec mounts.
func (s Spec) Buckets() (out []bucket.Mount) {
	for i, m := range s.Mounts {
		if isBucket(m) {
			out = append(out, bucket.Mount{Bucket: m.Bucket, Mode: m.Mode, At: fmt.Sprintf("mounts[%d]", i)})
		}
	}
	return out
}

// SharedFS returns the shared file systems that the spec mounts.
func (s Spec) SharedFS() (out []sharedfs.Mount) {
	for i, m := range s.Mounts {
		if isShared(m) {
			out = append(out, sharedfs.Mount{Name: m.Shared, Mode: m.Mode, At: fmt.Sprintf("mounts[%d]", i)})
		}
	}
	return out
}

// ReadVolumes reads how much of a host's scratch the volumes of a spec, and the caches of its buckets and lazy
// volumes, take: nodes are placed only where there is room for them. It returns the sizes of the volumes that the
// organisation has; one that it does not have takes no room here. Call it outside of transactions.
func (a *Request) ReadVolumes(ctx context.Context, q *dbq.Queries, spec Spec) (volume.Sizes, error) {
	sizes, err := volume.ReadSizes(ctx, q, a.Renter, spec.Volumes())
	if err != nil {
		return nil, err
	}
	var room int64
	for _, m := range spec.Mounts {
		if size, ok := sizes[m.Volume]; ok && isVolume(m) && !m.Lazy {
			room += agentapi.VolumeRoom(size)
		}
		if isBucket(m) || m.Lazy {
			room += agentapi.CacheRoom(m.CacheGB * 1e9)
		}
	}
	a.VolumesGB = (room + 1e9 - 1) / 1e9
	return sizes, nil
}

// readMounts is ReadVolumes for a quote: it refuses what could not be rented, without locks. Fault: Invalid, with the
// field.
func (a *Request) readMounts(ctx context.Context, q *dbq.Queries, spec Spec) error {
	sizes, err := a.ReadVolumes(ctx, q, spec)
	if err != nil {
		return err
	}
	if err := sizes.Check(spec.Volumes()); err != nil {
		return err
	}
	if err := bucket.Check(ctx, q, a.Renter, spec.Buckets()); err != nil {
		return err
	}
	return sharedfs.Check(ctx, q, spec.SharedFS())
}
