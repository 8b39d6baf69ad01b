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
	seller, err := s.Statements.SellerOf(ctx, who.Org, b)
	if err != nil && ctx.Err() == nil {
		s.Log.ErrorContext(ctx, "read the earnings", "org", who.Org, "err", err)
	}
	if seller.Only {
		return s.sellerBar(ctx, who, seller)
	}
	return view.Wallet{
		Available: view.CentsDown(b.Available),
		Burn:      view.PerHour(b.BurnPerHour),
		Runway:    Runway(b),
		Currency:  s.Currency,
		Running:   b.BurnPerHour > 0,
		None:      who.Admin && b.Available == 0 && b.Held == 0 && b.Owed == 0 && b.BurnPerHour == 0,
	}
}

// sellerBar returns what the top bar shows to an organisation that only sells.
func (s *Site) sellerBar(ctx context.Context, who account.Principal, seller statement.Seller) view.Wallet {
	bar := view.Wallet{
		Sells:      true,
		Earning:    view.PerHour(seller.PerHour),
		Unpaid:     view.CentsDown(seller.Unpaid),
		NextPayout: "not set up",
		Currency:   s.Currency,
		Running:    seller.PerHour > 0,
	}
	at, err := s.Payouts.Account(ctx, who.Org)
	switch {
	case err != nil:
		s.Log.ErrorContext(ctx, "read the payout account", "org", who.Org, "err", err)
		bar.NextPayout = "–"
	case at.NextAt != nil:
		bar.NextPayout = at.NextAt.UTC().Format("Mon 2 Jan")
	}
	return bar
}

// Runway describes how long the money lasts at the present burn rate.
func Runway(b statement.Balance) string {
	if b.RunwaySeconds == nil {
		return "no burn"
	}
	return view.Dur(time.Duration(*b.RunwaySeconds) * time.Second)
}
