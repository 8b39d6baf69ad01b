package db

import (
	"context"
	"fmt"
	"time"
)

// Alone runs f unless another replica runs Alone with the same lock, in which case it does nothing. The lock is an
// advisory lock of PostgreSQL on a connection of its own, which is held as long as f runs, without a transaction. While
// Alone runs so often that it holds its part of the pool, it waits, so that there are connections for f.
func (d *DB) Alone(ctx context.Context, lock int64, f func(context.Context) error) error {
	leave, err := d.shares.enter(For(ctx, Locks))
	if err != nil {
		return fmt.Errorf("take advisory lock %d: %w", lock, err)
	}
	defer leave()
	conn, err := d.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("take advisory lock %d: %w", lock, err)
	}
	defer conn.Release()
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", lock).Scan(&mine); err != nil {
		return fmt.Errorf("take advisory lock %d: %w", lock, err)
	}
	if !mine {
		return nil
	}
	defer func() {
		done, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if _, err := conn.Exec(done, "SELECT pg_advisory_unlock($1)", lock); err != nil {
			_ = conn.Conn().Close(done) // the lock ends with the connection
		}
	}()
	return f(ctx)
}
