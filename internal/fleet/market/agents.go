package market

import (
	"context"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// EnrollHost enrols a host with host.Enroll and creates the offers of its GPUs.
func (m *Market) EnrollHost(ctx context.Context, p host.EnrollPolicy,
	r agentapi.EnrollRequest) (h host.Host, err error) {
	err = m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if h, err = host.Enroll(ctx, tx, p, r); err != nil {
			return err
		}
		return m.SyncOffers(ctx, tx, h.ID)
	})
	return h, err
}

// UpdateInventory stores a host's inventory with host.RecordInventory and updates the host's offers.
func (m *Market) UpdateInventory(ctx context.Context, h id.Host, inv agentapi.Inventory) error {
	return m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := host.RecordInventory(ctx, tx, h, inv); err != nil {
			return err
		}
		return m.SyncOffers(ctx, tx, h)
	})
}

// PopularFor returns popular public images, most popular first, that a host without leases may download in advance, and
// the limit of their total size in bytes; 0 means no limit. The result is empty for a host whose data cap is used up
// for such images, and for a host with a data cap whose agent cannot observe the limit.
func (m *Market) PopularFor(ctx context.Context, h id.Host, capabilities []string) ([]string, int64, error) {
	images, err := m.Popular(ctx)
	if err != nil || len(images) == 0 {
		return nil, 0, err
	}
	left, bounded, err := host.DataForPopular(ctx, m.db.Q, h)
	switch {
	case err != nil:
		return nil, 0, err
	case !bounded:
		return images, 0, nil
	case left > 0 && slices.Contains(capabilities, agentapi.CapPopularBound):
		return images, left, nil
	}
	return nil, 0, nil
}
