package client

import (
	"context"
	"net/url"
	"time"

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

// CreatePromoCode makes a code of p's Code, Amount, MaxUses and ExpiresAt.
func (c *Client) CreatePromoCode(ctx context.Context, p PromoCode) (PromoCode, error) {
	in := map[string]any{"code": p.Code, "amount": p.Amount, "max_uses": p.MaxUses}
	if p.ExpiresAt != nil {
		in["expires_at"] = p.ExpiresAt
	}
	return post[PromoCode](ctx, c, "/admin/promo-codes", in)
}

// DisablePromoCode ends a code now; credit that it gave stays.
func (c *Client) DisablePromoCode(ctx context.Context, code string) (PromoCode, error) {
	return post[PromoCode](ctx, c, "/admin/promo-codes/"+url.PathEscape(code)+"/disable", struct{}{})
}
