package db

import (
	"context"
	"fmt"
)

// KeepPartitions creates the monthly partitions of the months ahead and drops at most one partition of each table whose
// rows are past their retention. PostgreSQL holds the rules (migrations, 00223); this may be called by any replica at
// any time, and by a role that may not change tables. It returns how many partitions were created and dropped.
func (d *DB) KeepPartitions(ctx context.Context) (created, dropped int, err error) {
	err = d.Pool.QueryRow(ctx, "SELECT made, dropped FROM keep_month_partitions()").Scan(&created, &dropped)
	if err != nil {
		return 0, 0, fmt.Errorf("monthly partitions: %w", err)
	}
	return created, dropped, nil
}
