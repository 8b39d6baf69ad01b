package client

import (
	"context"
	"net/http"
	"time"
)

// Sending says whether requests that move money are sent to Stripe.
type Sending struct {
	Paused bool       `json:"paused"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

// Sending asks whether requests that move money are sent to Stripe. Platform operators only.
func (c *Client) Sending(ctx context.Context) (Sending, error) {
	return get[Sending](ctx, c, "/admin/sending", nil)
}

// SetSending pauses everything that moves money at Stripe, or resumes it, for a reason that the audit trail keeps.
// Platform operators only.
func (c *Client) SetSending(ctx context.Context, paused bool, reason string) (out Sending, err error) {
	err = c.call(ctx, http.MethodPut, "/admin/sending", nil, map[string]any{"paused": paused, "reason": reason}, &out)
	return out, err
}
