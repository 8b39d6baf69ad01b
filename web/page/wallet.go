package page

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/web/view"
)

// WalletOf is the visitor's wallet for the top bar. When it cannot be read the page is shown all the same, with dashes.
func (s *Site) WalletOf(ctx context.Context, who account.Principal) view.Wallet {
	b, err := s.Statements.OrgBalance(ctx, who.Org)
	if err != nil {
		if ctx.Err() != nil { // whoever asked has left: nothing is wrong with the wallet
			return view.Wallet{Available: "–", Burn: "–", Runway: "–", Currency: s.Currency}
		}
		s.Log.ErrorContext(ctx, "read the wallet", "org", who.Org, "err", err)
		return view.Wallet{Available: "–", Burn: "–", Runway: "–", Currency: s.Currency}
	}
	return view.Wallet{
		Available: view.Cents(b.Available),
		Burn:      view.PerHour(b.BurnPerHour),
		Runway:    Runway(b),
		Currency:  s.Currency,
		Running:   b.BurnPerHour > 0,
	}
}

// Runway is how long the money lasts at the present burn.
func Runway(b statement.Balance) string {
	if b.RunwaySeconds == nil {
		return "no burn"
	}
	return view.Dur(time.Duration(*b.RunwaySeconds) * time.Second)
}
