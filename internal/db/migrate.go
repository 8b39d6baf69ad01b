package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib" // goose uses database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/musterhq/muster/migrations"
)

// Migrate migrates the schema to this binary's version. Replicas that start together wait for each other on an advisory
// lock; a second run changes nothing.
//
// A migration waits for a lock for at most 3 s, because all later requests wait behind it: then, or when it was in a
// deadlock, it is rolled back and retried, until ctx ends or it has failed so for ten minutes.
func Migrate(ctx context.Context, url string) error {
	return migrate(ctx, url, migrations.FS, migrationWaits{"3s", 2 * time.Second, 10 * time.Minute})
}

// migrationWaits are how long a migration waits for a lock, how long it then lets others go first, and for how long it
// is retried.
type migrationWaits struct {
	lock         string
	pause, tried time.Duration
}

func migrate(ctx context.Context, url string, files fs.FS, w migrationWaits) error {
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil { // pgx quotes the URL, which contains the password, in its error
		return errors.New("open for migration: the PostgreSQL address cannot be read")
	}
	cfg.RuntimeParams["lock_timeout"] = w.lock
	std := stdlib.OpenDB(*cfg)
	defer std.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, std, files, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	for end := time.Now().Add(w.tried); ; {
		_, err := p.Up(ctx)
		if err == nil {
			return nil
		}
		var pe *pgconn.PgError
		locked := errors.As(err, &pe) && (pe.Code == "55P03" || pe.Code == "40P01") // lock_timeout, or a deadlock
		if !locked || time.Now().After(end) {
			return fmt.Errorf("migrate: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("migrate: %w", err)
		case <-time.After(w.pause):
		}
	}
}

// SchemaReady returns an error unless the database's schema is at least this binary's. A newer schema is accepted:
// migrations are safe for the previous version.
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
