package web

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/ledger"
	"github.com/musterhq/muster/web/view"
)

// purse is the visitor's wallet for the top bar. When it cannot be read the page is shown all the same, with dashes.
func (s *Web) purse(ctx context.Context, who account.Principal) view.Purse {
	p := view.Purse{Available: "–", Burn: "–", Runway: "–", Currency: s.Currency}
	b, err := ledger.OrgBalances(ctx, s.DB.Q, who.Org, s.Currency)
	if err != nil {
		s.Log.ErrorContext(ctx, "read the wallet", "org", who.Org, "err", err)
		return p
	}
	p.Available = view.Cents(b.Available)
	return p
}
