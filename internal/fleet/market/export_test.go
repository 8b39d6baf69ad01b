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

// ParseSpec decodes a spec as the request of a rent does, and validates it.
func ParseSpec(b []byte) (Spec, error) {
	var s Spec
	if err := s.UnmarshalJSON(b); err != nil {
		return Spec{}, err
	}
	return s, s.Validate(true)
}
