package client

import (
	"context"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// PromoCode gives credit away, to each organisation once.
type PromoCode struct {
	Code      string     `json:"code"`
	Amount    money.Nano `json:"amount"`
	Currency  string     `json:"currency"`
	MaxUses   int        `json:"max_uses"`
	Uses      int        `json:"uses"`
	ExpiresAt *time.Time `json:"expires_at"` // nil: never
	CreatedAt time.Time  `json:"created_at"`
}

// PromoCodes lists the last codes made. It and all below are for platform operators.
func (c *Client) PromoCodes(ctx context.Context) (Page[PromoCode], error) {
	return get[Page[PromoCode]](ctx, c, "/admin/promo-codes", nil)
}

// CreatePromoCode makes a code of p's Code, Amount, MaxUses and ExpiresAt; the audit trail keeps the reason.
func (c *Client) CreatePromoCode(ctx context.Context, p PromoCode, reason string) (PromoCode, error) {
	in := map[string]any{"code": p.Code, "amount": p.Amount, "max_uses": p.MaxUses, "reason": reason}
	if p.ExpiresAt != nil {
		in["expires_at"] = p.ExpiresAt
	}
	return post[PromoCode](ctx, c, "/admin/promo-codes", in)
}

// DisablePromoCode ends a code now; credit that it gave stays. The audit trail keeps the reason.
func (c *Client) DisablePromoCode(ctx context.Context, code, reason string) (PromoCode, error) {
	return post[PromoCode](ctx, c, "/admin/promo-codes/"+url.PathEscape(code)+"/disable",
		map[string]string{"reason": reason})
}

// Redemption is an organisation's use of a code.
type Redemption struct {
	Code     string     `json:"code"`
	Org      id.Org     `json:"org_id"`
	OrgName  string     `json:"org_name"`
	Amount   money.Nano `json:"amount"`
	Currency string     `json:"currency"`
	At       time.Time  `json:"redeemed_at"`
}

// Redemptions lists the uses of a code ("": of all) by an organisation (zero: by all), newest first.
func (c *Client) Redemptions(ctx context.Context, code string, org id.Org, p PageOf) (Page[Redemption], error) {
	q := p.query()
	if code != "" {
		q.Set("code", code)
	}
	if !org.IsZero() {
		q.Set("org_id", org.String())
	}
	return get[Page[Redemption]](ctx, c, "/admin/promo-redemptions", q)
}
