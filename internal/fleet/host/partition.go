package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
)

// TelemetryPartitions creates the partitions of today and the three days ahead, and drops those that hold only what is
// older than keep. Rows that arrived before their day had a partition move into it.
func TelemetryPartitions(ctx context.Context, d *db.DB, keep time.Duration) error {
	if _, err := d.Pool.Exec(ctx, "SELECT keep_telemetry_partitions($1)", keep); err != nil {
		return fmt.Errorf("host: telemetry partitions: %w", err)
	}
	return nil
}
