package market

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

const million = 1_000_000

// Fee returns the platform's part of what the organisation's hosts earn from new leases, in millionths.
func (m *Market) Fee(ctx context.Context, org id.Org) (int, error) {
	ppm, err := m.db.Q.OrgFee(ctx, org)
	if db.NoRows(err) {
		return million - m.cfg.HostSharePPM, nil
	}
	if err != nil {
		return 0, fmt.Errorf("fee of %s: %w", org, err)
	}
	return int(ppm), nil
}

// SetFee sets the platform's part of what the organisation's hosts earn from new leases, in millionths, and notifies
// the organisation with the reason. Running leases and held quotes keep their fee. Only staff may call it. Faults:
// Forbidden, NotFound, Invalid.
func (m *Market) SetFee(ctx context.Context, tx *db.Tx, who account.Principal, org id.Org, feePPM int,
	reason string) error {
	if err := account.RequireStaff(who); err != nil {
		return err
	}
	var bad fault.Fields
	between(&bad, "fee_ppm", int64(feePPM), 0, million)
	if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
		bad.Add("reason", "says why, in at most 500 bytes: the operator reads it")
	}
	if err := bad.Err(); err != nil {
		return err
	}
	hosts, err := tx.Q.HostIDsOfOrg(ctx, org)
	if err != nil {
		return fmt.Errorf("hosts of %s: %w", org, err)
	}
	if err := host.LockOnly(ctx, tx, hosts); err != nil {
		// The locks ensure that a concurrent rent uses the old fee or the new one for all of its nodes.
		return err
	}
	n, err := tx.Q.SetOrgFee(ctx, int32(feePPM), who.User, org)
	if err != nil {
		return fmt.Errorf("fee of %s: %w", org, err)
	}
	if n == 0 {
		return fault.New(fault.NotFound, "organisation not found")
	}
	if err := tx.Q.SetOfferShares(ctx, int32(million-feePPM), id.UUIDs(hosts...)); err != nil {
		return fmt.Errorf("fee of %s: %w", org, err)
	}
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "fee:" + id.New[id.Notice]().String(),
		Severity: notify.Info,
		Object:   org.String(),
		Title:    fmt.Sprintf("Of new leases %.4g %% is yours", float64(million-feePPM)/10_000),
		Body:     reason + " Running leases keep their share.",
	}); err != nil {
		return err
	}
	return audit.Record(ctx, tx, who.Event("operator.fee", org.String(), map[string]any{
		"fee_ppm": feePPM,
		"reason":  reason,
	}))
}
