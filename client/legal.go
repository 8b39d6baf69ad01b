package client

import (
	"context"
	"net/http"
	"time"
)

// Legal is who the organisation is before the law, as documents name it. Name "": it has not told.
type Legal struct {
	Name      string     `json:"name"`
	Address   []string   `json:"address"` // lines, without the country
	Country   string     `json:"country"` // ISO 3166-1 alpha-2
	VATID     string     `json:"vat_id"`  // "" = none
	ChangedAt *time.Time `json:"changed_at"`
}

// Legal reads it.
func (c *Client) Legal(ctx context.Context) (Legal, error) {
	return get[Legal](ctx, c, "/org/legal", nil)
}

// SetLegal replaces it and returns it as it is kept. ChangedAt is not sent.
func (c *Client) SetLegal(ctx context.Context, l Legal) (out Legal, err error) {
	in := map[string]any{
		"name":    l.Name,
		"address": append([]string{}, l.Address...),
		"country": l.Country,
		"vat_id":  l.VATID,
	}
	err = c.call(ctx, http.MethodPut, "/org/legal", nil, in, &out)
	return out, err
}

// EraseLegal has it forgotten.
func (c *Client) EraseLegal(ctx context.Context) error { return c.remove(ctx, "/org/legal", nil) }
