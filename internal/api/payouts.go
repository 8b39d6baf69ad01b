package api

import (
	"cmp"
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/payout"
)

type payoutBalanceView struct {
	Pending  money.Nano `json:"pending" doc:"earned, and in the holdback"`
	Payable  money.Nano `json:"payable" doc:"earned before it, and not paid out yet"`
	Holdback int64      `json:"holdback_seconds"`
	Frozen   []id.Lease `json:"frozen_lease_ids" doc:"leases with two accounts of the same time; until they are looked at, nothing becomes payable"`
	Currency string     `json:"currency"`
}

func (a *API) payoutBalance(ctx context.Context, p account.Principal, _ *struct{}) (payoutBalanceView, error) {
	s, err := payout.Of(ctx, a.db.Q, p.Org, a.cfg.Currency, cmp.Or(a.cfg.Holdback, payout.DefaultHoldback))
	return payoutBalanceView{s.Pending, s.Payable, int64(s.Holdback.Seconds()), append([]id.Lease{}, s.Frozen...), s.Currency}, err
}
