package page

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/web/view"
)

// WalletOf returns the visitor's wallet for the top bar. If it cannot be read, the bar shows dashes.
func (s *Site) WalletOf(ctx context.Context, who account.Principal) view.Wallet {
	b, err := s.Statements.OrgBalance(ctx, who.Org)
	if err != nil {
		if ctx.Err() != nil { // the client disconnected: not an error of the wallet
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

// Runway describes how long the money lasts at the present burn rate.
func Runway(b statement.Balance) string {
	if b.RunwaySeconds == nil {
		return "no burn"
	}
	return view.Dur(time.Duration(*b.RunwaySeconds) * time.Second)
}
