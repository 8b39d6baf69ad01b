package market

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// ReadVolumes reads how much of a host's scratch the volumes of a spec, and the caches of its buckets and lazy
// volumes, take: nodes are placed only where there is room for them. A volume that the organisation does not have
// takes none here: quotes and rents refuse it. Call it outside of transactions.
func (a *Request) ReadVolumes(ctx context.Context, q *dbq.Queries, mounts []Mount) error {
	_, err := a.readVolumes(ctx, q, mounts)
	return err
}

// readVolumes is ReadVolumes, and returns which of the volumes the organisation has.
func (a *Request) readVolumes(ctx context.Context, q *dbq.Queries, mounts []Mount) (map[id.Volume]bool, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	var ids []pgtype.UUID
	var room int64
	lazy := map[id.Volume]bool{}
	for _, m := range mounts {
		if isShared(m) {
			continue
		}
		if isBucket(m) || m.Lazy {
			room += agentapi.CacheRoom(m.CacheGB * 1e9)
		}
		if isBucket(m) {
			continue
		}
		lazy[m.Volume] = m.Lazy
		ids = append(ids, pgtype.UUID{Bytes: m.Volume.UUID(), Valid: true})
	}
	rows, err := q.VolumeSizes(ctx, a.Renter, ids)
	if err != nil {
		return nil, fmt.Errorf("read sizes of volumes of %s: %w", a.Renter, err)
	}
	have := make(map[id.Volume]bool, len(rows))
	for _, r := range rows {
		have[r.ID] = true
		if lazy[r.ID] {
			continue
		}
		room += agentapi.VolumeRoom(r.SizeLimit)
	}
	a.VolumesGB = (room + 1e9 - 1) / 1e9
	return have, nil
}

// quoteVolumes is ReadVolumes for a quote, which could not be rented with a volume that the organisation does not have.
// Another organisation's volume is refused in the same words as one that does not exist. Fault: Invalid, with the
// field.
func (a *Request) quoteVolumes(ctx context.Context, q *dbq.Queries, mounts []Mount) error {
	have, err := a.readVolumes(ctx, q, mounts)
	if err != nil {
		return err
	}
	var bad fault.Fields
	for i, m := range mounts {
		if isVolume(m) && !have[m.Volume] {
			bad.Add(fmt.Sprintf("mounts[%d].volume", i), "volume %s not found", m.Volume)
		}
	}
	return bad.Err()
}
