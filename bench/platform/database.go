// Package platform makes what the benchmarks measure on: databases with a synthetic fleet and funded renters, and the
// real server in front of them.
//
// A round runs on a fresh clone of one template, so that every round, ours and the baseline's, starts from the same
// pages, and none pays for the rows another left behind.
package platform

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
)

// Describe names the server at base and the settings that matter to a measurement.
func Describe(ctx context.Context, base string) (string, error) {
	c, err := pgx.Connect(ctx, base)
	if err != nil {
		return "", fmt.Errorf("connect to the PostgreSQL server for benchmarks: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	var s string
	err = c.QueryRow(ctx, `SELECT 'PostgreSQL ' || current_setting('server_version') || ': ' ||
		string_agg(name || '=' || current_setting(name), ' ' ORDER BY name)
		FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers',
		'max_wal_size')`).Scan(&s)
	return s, err
}

// Template is a filled database that rounds are cloned from.
type Template struct{ base, name string }

// NewTemplate makes a migrated database on the server at base (a role that may create databases) and lets fill write
// into it; fill gets its address too. The caller drops it.
func NewTemplate(ctx context.Context, base string, fill func(ctx context.Context, d *db.DB,
	at string) error) (*Template, error) {
	t := &Template{base: base, name: newName("bench_template_")}
	if err := admin(ctx, base, "CREATE DATABASE "+t.name); err != nil {
		return nil, err
	}
	if err := t.fill(ctx, fill); err != nil {
		t.Drop(ctx)
		return nil, err
	}
	return t, nil
}

func (t *Template) fill(ctx context.Context, fill func(context.Context, *db.DB, string) error) error {
	at := with(t.base, t.name)
	if err := db.Migrate(ctx, at); err != nil {
		return err
	}
	d, err := db.Open(ctx, db.Config{URL: at})
	if err != nil {
		return err
	}
	defer d.Close() // a template with connections cannot be cloned
	if err := fill(ctx, d, at); err != nil {
		return err
	}
	_, err = d.Pool.Exec(ctx, "VACUUM ANALYZE") // plans of a database that has been in use
	return err
}

// Drop removes the template.
func (t *Template) Drop(ctx context.Context) { drop(ctx, t.base, t.name) }

// Clone makes a database like the template and returns its address; drop removes it. A checkpoint comes before, so
// that none that is due falls into one measurement and not into the other.
func (t *Template) Clone(ctx context.Context) (at string, dropIt func(), err error) {
	name := newName("bench_")
	if err := admin(ctx, t.base, "CREATE DATABASE "+name+" TEMPLATE "+t.name, "CHECKPOINT"); err != nil {
		return "", nil, err
	}
	return with(t.base, name), func() { drop(ctx, t.base, name) }, nil
}

func newName(prefix string) string {
	return prefix + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
}

func drop(ctx context.Context, base, name string) {
	_ = admin(context.WithoutCancel(ctx), base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

func admin(ctx context.Context, base string, statements ...string) error {
	c, err := pgx.Connect(ctx, base)
	if err != nil {
		return fmt.Errorf("connect to the PostgreSQL server for benchmarks: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func with(base, name string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	u.Path = "/" + name
	return u.String()
}
