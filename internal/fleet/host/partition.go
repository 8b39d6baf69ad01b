package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
)

// TelemetryPartitions creates the partitions of today and the next three days, and drops partitions that contain only
// samples older than keep. Rows that arrived before their day's partition existed are moved into it.
func TelemetryPartitions(ctx context.Context, d *db.DB, keep time.Duration) error {
	if _, err := d.Pool.Exec(ctx, "SELECT keep_telemetry_partitions($1)", keep); err != nil {
		return fmt.Errorf("telemetry partitions: %w", err)
	}
	return nil
}
