package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/musterhq/muster/internal/money"
)

// DeletionStanding is whether the caller can be deleted now.
type DeletionStanding struct {
	Reasons []string   `json:"reasons"` // why not; empty: nothing is in the way
	Credit  money.Nano `json:"credit"`  // what is left of their organisations' money
}

// DeletionStanding reads it.
func (c *Client) DeletionStanding(ctx context.Context) (DeletionStanding, error) {
	return get[DeletionStanding](ctx, c, "/me/deletion", nil)
}

// Export is what is kept of the caller, as JSON.
func (c *Client) Export(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/me/export", nil)
}

// DeleteMe erases the caller's data. confirm is their e-mail address; giveUp gives up the money that is left.
func (c *Client) DeleteMe(ctx context.Context, password, confirm string, giveUp bool) error {
	in := map[string]any{"password": password, "confirm": confirm, "give_up_balance": giveUp}
	return c.call(ctx, http.MethodPut, "/me/deletion", nil, in, nil)
}
