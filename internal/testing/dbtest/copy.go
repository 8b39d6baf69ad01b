package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/internal/db"
)

// Copy copies a database as it is now, like a backup that is restored later, and returns the copy's URL. No other
// connection to the original may be open meanwhile.
func Copy(t testing.TB, original string) string {
	t.Helper()
	base := os.Getenv(EnvURL)
	u, err := url.Parse(original)
	if err != nil {
		t.Fatal(err)
	}
	name := "mt_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := admin(base, func(ctx context.Context, c *pgx.Conn) error {
		return clone(ctx, c, name, strings.TrimPrefix(u.Path, "/"))
	}); err != nil {
		t.Fatalf("copy the database: %v", err)
	}
	t.Cleanup(func() {
		_ = admin(base, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name))
			return err
		})
	})
	return with(base, name)
}

// Mortal opens a database as NewMortal does.
func Mortal(t testing.TB, databaseURL string) (*db.DB, *Killer) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	k := &Killer{}
	cfg.ConnConfig.Tracer = k
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return db.New(pool), k
}
