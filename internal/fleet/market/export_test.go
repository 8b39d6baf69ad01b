package market

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
)

// ClaimQuote claims the GPUs of a plan that Quote would not make any more.
func (m *Market) ClaimQuote(ctx context.Context, tx *db.Tx, who account.Principal, spec Spec,
	plan Placement) (Quote, error) {
	return m.claimQuote(ctx, tx, who, spec, plan)
}
