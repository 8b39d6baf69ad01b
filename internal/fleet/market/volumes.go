package market

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
)

// ReadVolumes reads how much of a host's scratch the volumes of a spec take: nodes are placed only where there is room
// for them. A volume that the organisation does not have takes none here: renting refuses it. Call it outside of
// transactions.
func (a *Request) ReadVolumes(ctx context.Context, q *dbq.Queries, mounts []Mount) error {
	if len(mounts) == 0 {
		return nil
	}
	ids := make([]pgtype.UUID, len(mounts))
	for i, m := range mounts {
		ids[i] = pgtype.UUID{Bytes: m.Volume.UUID(), Valid: true}
	}
	sizes, err := q.VolumeSizes(ctx, a.Renter, ids)
	if err != nil {
		return fmt.Errorf("read sizes of volumes of %s: %w", a.Renter, err)
	}
	var room int64
	for _, size := range sizes {
		room += agentapi.VolumeRoom(size)
	}
	a.VolumesGB = (room + 1e9 - 1) / 1e9
	return nil
}
