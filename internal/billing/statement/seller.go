package statement

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Seller is what an org's hosts earn at a glance.
type Seller struct {
	// Only means that the org sells and does not rent: it has hosts, no cluster, and no money of a renter.
	Only    bool
	PerHour money.Micro // earned now, the org's part
	Unpaid  money.Nano  // earned and not paid out: measured, in the holdback, or payable
}

// SellerOf returns what the org's hosts earn. balance is what the org has as a renter.
func (s *Statements) SellerOf(ctx context.Context, org id.Org, balance Balance) (Seller, error) {
	if balance.Available > 0 || balance.Held > 0 || balance.BurnPerHour > 0 || balance.Owed > 0 {
		return Seller{}, nil
	}
	sides, err := s.d.Q.OrgSides(ctx, org)
	if err != nil {
		return Seller{}, fmt.Errorf("read what %s does: %w", org, err)
	}
	if !sides.Sells || sides.Rents {
		return Seller{}, nil
	}
	now, err := metering.OperatorEarning(ctx, s.d.Q, org)
	if err != nil {
		return Seller{}, err
	}
	out := Seller{Only: true, PerHour: now.PerHour, Unpaid: now.Unposted}
	for _, a := range []ledger.Account{ledger.HostPending(org, s.currency), ledger.HostPayable(org, s.currency)} {
		n, err := ledger.Balance(ctx, s.d.Q, a)
		if err != nil {
			return Seller{}, err
		}
		out.Unpaid += n
	}
	return out, nil
}
