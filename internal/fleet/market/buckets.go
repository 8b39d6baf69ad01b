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

func isBucket(m Mount) bool { return !m.Bucket.IsZero() }
func isVolume(m Mount) bool { return !isBucket(m) && !isShared(m) }

// quoteBuckets refuses a quote with buckets that could not be rented: those that the organisation does not have, and
// writers of those that are registered for reading. Call it outside of transactions. Fault: Invalid, with the field.
func quoteBuckets(ctx context.Context, q *dbq.Queries, org id.Org, mounts []Mount) error {
	var ids []pgtype.UUID
	for _, m := range mounts {
		if isBucket(m) {
			ids = append(ids, pgtype.UUID{Bytes: m.Bucket.UUID(), Valid: true})
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := q.BucketsByID(ctx, ids, org)
	if err != nil {
		return fmt.Errorf("read buckets of %s: %w", org, err)
	}
	have := map[id.Bucket]dbq.BucketsByIDRow{}
	for _, r := range rows {
		have[r.ID] = r
	}
	var bad fault.Fields
	for i, m := range mounts {
		r, ok := have[m.Bucket]
		switch {
		case !isBucket(m):
		case !ok:
			bad.Add(fmt.Sprintf("mounts[%d].bucket", i), "bucket %s not found", m.Bucket)
		case m.Mode == agentapi.MountRW && r.Mode == agentapi.MountRO:
			bad.Add(fmt.Sprintf("mounts[%d].mode", i), "the bucket %s is registered for reading only: want ro", r.Name)
		}
	}
	return bad.Err()
}
