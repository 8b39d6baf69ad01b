package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// VanishedAfter is how long an ephemeral host must be silent before it is retired.
const VanishedAfter = 24 * time.Hour

// RetireVanished retires the ephemeral hosts that have not reported for VanishedAfter and on which nothing is claimed:
// virtual machines that their cloud took away. While a server runs that started less than an hour ago it retires none,
// because hosts may not have found it yet. What counts against such a host counts against its heir, as when an operator
// retires a host. RetireVanished returns the number of hosts that it retired.
func (x *Hosts) RetireVanished(ctx context.Context) (int, error) {
	silent, err := x.db.Q.VanishedHosts(ctx, VanishedAfter.Milliseconds())
	if err != nil {
		return 0, fmt.Errorf("find vanished hosts: %w", err)
	}
	done := 0
	for _, h := range silent {
		retired := false
		errOne := x.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			retired, err = x.retireVanished(ctx, tx, h)
			return err
		})
		if errOne != nil {
			err = errors.Join(err, fmt.Errorf("retire %s, which has vanished: %w", h, errOne))
		} else if retired {
			done++
		}
	}
	return done, err
}

// retireVanished retires one host, unless it has reported or got a claim while the transaction waited for its lock.
func (x *Hosts) retireVanished(ctx context.Context, tx *db.Tx, host id.Host) (bool, error) {
	h, err := lockOne(ctx, tx, host)
	if err != nil || h.State == Retired || !h.Ephemeral {
		return false, err
	}
	if out, err := tx.Q.HostOutOfReach(ctx, VanishedAfter.Milliseconds(), host); err != nil || !out {
		return false, err
	}
	if claims, err := tx.Q.CountHostClaims(ctx, host); err != nil || claims > 0 {
		return false, err
	}
	nobody := account.Principal{Org: h.Org}
	if err := x.remove(ctx, tx, h); err != nil {
		return false, err
	}
	e := nobody.Event("host.vanish", host.String(), map[string]any{"name": h.Name})
	if err := audit.Record(ctx, tx, e); err != nil {
		return false, err
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org: h.Org, Key: "host.vanish:" + host.String(), Severity: notify.Info, Object: host.String(),
		Title: h.Name + " was retired: it has not reported for a day.",
		Body: "It was enrolled with --ephemeral. What it earned stays yours. If the machine comes back, move its " +
			"/var/lib/muster-agent aside and enrol it again.",
	})
	return true, err
}
