package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/db"
)

const (
	partitionPrefix = "telemetry_"
	partitionForm   = "20060102"
	daysAhead       = 3
)

// TelemetryPartitions makes the partitions of today and the days ahead, and drops those that hold only what is older
// than keep. Rows that came before their day had a partition move into it.
func TelemetryPartitions(ctx context.Context, d *db.DB, keep time.Duration) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		// One replica at a time, and none waits.
		var mine bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(727275)").Scan(&mine); err != nil || !mine {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		have, err := partitions(ctx, tx)
		if err != nil {
			return err
		}
		today := now.Truncate(24 * time.Hour)
		for n := range daysAhead + 1 {
			if day := today.AddDate(0, 0, n); !have[day] {
				if err := makePartition(ctx, tx, day); err != nil {
					return fmt.Errorf("host: telemetry partition of %s: %w", day.Format(time.DateOnly), err)
				}
			}
		}
		for day := range have {
			if now.Sub(day.AddDate(0, 0, 1)) > keep {
				if _, err := tx.Exec(ctx, "DROP TABLE "+partitionPrefix+day.Format(partitionForm)); err != nil {
					return fmt.Errorf("host: drop telemetry of %s: %w", day.Format(time.DateOnly), err)
				}
			}
		}
		_, err = tx.Exec(ctx, "DELETE FROM telemetry_default WHERE bucket < $1", now.Add(-keep))
		return err
	})
}

func partitions(ctx context.Context, tx *db.Tx) (map[time.Time]bool, error) {
	rows, err := tx.Query(ctx, "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'telemetry'::regclass")
	if err != nil {
		return nil, fmt.Errorf("host: list telemetry partitions: %w", err)
	}
	defer rows.Close()
	have := map[time.Time]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if day, err := time.Parse(partitionForm, strings.TrimPrefix(name, partitionPrefix)); err == nil {
			have[day] = true
		}
	}
	return have, rows.Err()
}

func makePartition(ctx context.Context, tx *db.Tx, day time.Time) error {
	table := partitionPrefix + day.Format(partitionForm)
	from, to := day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339)
	for _, sql := range []string{
		"CREATE TABLE " + table + " (LIKE telemetry INCLUDING DEFAULTS)",
		// Nothing may arrive in the default partition between the move and the attachment.
		"LOCK TABLE telemetry_default IN ACCESS EXCLUSIVE MODE",
		fmt.Sprintf(`WITH moved AS (
			DELETE FROM telemetry_default WHERE bucket >= '%s' AND bucket < '%s'
			RETURNING gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c)
		INSERT INTO %s (gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c)
		SELECT gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c FROM moved`, from, to, table),
		fmt.Sprintf("ALTER TABLE telemetry ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')", table, from, to),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
