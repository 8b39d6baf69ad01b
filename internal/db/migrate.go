package db

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/musterhq/muster/migrations"
)

// Migrate brings the schema to this binary's version. Replicas starting together wait for each
// other on an advisory lock; running it again changes nothing.
func Migrate(ctx context.Context, url string) error {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	std, err := sql.Open("pgx", url)
	if err != nil {
		return fmt.Errorf("open for migration: %w", err)
	}
	defer std.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, std, migrations.FS, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// SchemaReady reports whether the database's schema is at least this binary's. A newer schema is fine: migrations are
// safe for the previous version.
func (d *DB) SchemaReady(ctx context.Context) error {
	var have int64
	err := d.Pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&have)
	if err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	want, err := latest()
	if err != nil {
		return err
	}
	if have < want {
		return fmt.Errorf("the schema is at version %d, this server needs %d: run `muster server migrate`", have, want)
	}
	return nil
}

func latest() (int64, error) {
	entries, err := migrations.FS.ReadDir(".")
	if err != nil {
		return 0, err
	}
	var v int64
	for _, e := range entries {
		n, err := goose.NumericComponent(e.Name())
		if err == nil && n > v {
			v = n
		}
	}
	return v, nil
}
