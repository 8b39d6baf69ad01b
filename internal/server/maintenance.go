package server

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/serve/hostlink"
)

// Migrate migrates the schema of cfg's database to this version.
func Migrate(ctx context.Context, cfg Config) error {
	if err := db.Migrate(ctx, string(cfg.DatabaseURL)); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// CheckLedger reads the whole ledger of cfg's database in one snapshot and verifies that it balances, and that what was
// charged for storage follows from what was stored.
func CheckLedger(ctx context.Context, cfg Config) (t ledger.TrialBalance, err error) {
	err = withDatabase(ctx, cfg, func(d *db.DB) error {
		if t, err = ledger.CheckAll(ctx, d); err != nil {
			return err
		}
		storage, err := volume.CheckMeters(ctx, d)
		t.Problems = append(t.Problems, storage...)
		return err
	})
	return t, err
}

// contestedMost bounds the list of contested GPUs.
const contestedMost = 1000

// ContestedGPUs lists the GPUs in cfg's database that hosts of several organisations list, at most 1000.
func ContestedGPUs(ctx context.Context, cfg Config) (gpus []host.ContestedGPU, err error) {
	err = withDatabase(ctx, cfg, func(d *db.DB) error {
		gpus, err = host.ContestedGPUs(ctx, d.Q, contestedMost)
		return err
	})
	return gpus, err
}

// AwardGPU records in cfg's database that the GPU with a UUID is the one that a host lists; see host.AwardGPU.
func AwardGPU(ctx context.Context, cfg Config, uuid string, to id.Host, why string) error {
	return withDatabase(ctx, cfg, func(d *db.DB) error { return host.AwardGPU(ctx, d, uuid, to, why) })
}

// SetAdmin makes the user with the given e-mail address an admin of the platform, or takes the right away.
func SetAdmin(ctx context.Context, cfg Config, email string, admin bool) error {
	return withDatabase(ctx, cfg, func(d *db.DB) error {
		return account.New(d, account.Config{}).SetAdmin(ctx, email, admin)
	})
}

// ResetSecondFactor removes every second factor of the user with the given e-mail address, who has lost them all.
func ResetSecondFactor(ctx context.Context, cfg Config, email string) error {
	return withDatabase(ctx, cfg, func(d *db.DB) error {
		return account.New(d, account.Config{}).SecondFactors.Reset(ctx, email)
	})
}

// withDatabase calls f with two connections to cfg's database, and closes them.
func withDatabase(ctx context.Context, cfg Config, f func(*db.DB) error) error {
	d, err := db.Open(ctx, db.Config{URL: string(cfg.DatabaseURL), MaxConns: 2})
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer d.Close()
	return f(d)
}

// NATSConfig returns what an external NATS cluster includes in its configuration to serve this platform; see
// hostlink.NATSConfig.
func NATSConfig(cfg Config) (string, error) {
	secret, err := cfg.linkSecret()
	if err != nil {
		return "", err
	}
	return hostlink.NATSConfig(secret)
}
