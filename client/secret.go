package client

import (
	"context"
	"time"
)

// SealState says how far secrets at rest are sealed with the platform's present secret.
type SealState struct {
	Rotating  bool       `json:"rotating"` // the server that answers accepts another secret, too
	Resealed  int64      `json:"resealed"`
	Remaining int64      `json:"remaining"`
	PassedAt  *time.Time `json:"passed_at"`
	NeededTo  *time.Time `json:"needed_to"`
	Done      bool       `json:"done"` // the other secret is not needed any more
}

// SealState asks how far secrets at rest are sealed with the platform's present secret. Platform operators only.
func (c *Client) SealState(ctx context.Context) (SealState, error) {
	return get[SealState](ctx, c, "/admin/secret", nil)
}
