package client

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// ChangePassword replaces the caller's password and ends all sessions of the dashboard. revokeTokens also revokes the
// caller's other API tokens.
func (c *Client) ChangePassword(ctx context.Context, current, next string, revokeTokens bool) error {
	in := map[string]any{"old_password": current, "new_password": next, "revoke_tokens": revokeTokens}
	return c.call(ctx, http.MethodPut, "/me/password", nil, in, nil)
}

// Session is one browser in which the caller is signed in to the dashboard.
type Session struct {
	ID         id.Session `json:"id"`
	Address    string     `json:"address"`
	UserAgent  string     `json:"user_agent"`
	CreatedAt  time.Time  `json:"created_at"`
	LastSeenAt time.Time  `json:"last_seen_at"` // to the minute
	ExpiresAt  time.Time  `json:"expires_at"`
}

// Sessions lists the caller's sessions, the last used first. It needs a token with all scopes.
func (c *Client) Sessions(ctx context.Context) (Page[Session], error) {
	return get[Page[Session]](ctx, c, "/me/sessions", nil)
}

// EndSession signs the caller out in one browser.
func (c *Client) EndSession(ctx context.Context, s id.Session) error {
	return c.remove(ctx, "/me/sessions/"+s.String(), nil)
}
