package api

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

type passwordInput struct {
	Body struct {
		Old          string `json:"old_password" maxLength:"1000"`
		New          string `json:"new_password" maxLength:"1000" doc:"at least 10 characters"`
		RevokeTokens bool   `json:"revoke_tokens,omitempty" doc:"end your other API tokens too"`
	}
}

// passwordSet says what a new password ended.
type passwordSet struct {
	Changed bool `json:"changed"`
}

func (a *API) changePassword(ctx context.Context, p account.Principal, in *passwordInput) (passwordSet, error) {
	err := a.accounts.ChangePassword(ctx, p, in.Body.Old, in.Body.New, in.Body.RevokeTokens)
	return passwordSet{err == nil}, err
}

// sessionView is one place where the user is signed in.
type sessionView struct {
	ID         id.Session `json:"id"`
	Address    string     `json:"address" doc:"where it was opened from"`
	UserAgent  string     `json:"user_agent"`
	CreatedAt  time.Time  `json:"created_at"`
	LastSeenAt time.Time  `json:"last_seen_at" doc:"to the minute"`
	ExpiresAt  time.Time  `json:"expires_at"`
}

func viewSession(s account.Session) sessionView {
	return sessionView{s.ID, s.Address, s.UserAgent, s.CreatedAt.UTC(), s.LastSeenAt.UTC(), s.ExpiresAt.UTC()}
}

// wholeUser is Forbidden for a token that cannot do all its user can: sessions are the user's, not the token's.
func wholeUser(p account.Principal) error {
	for _, s := range account.Scopes() {
		if !p.Can(s) {
			return fault.New(fault.Forbidden, "sessions are for tokens with all scopes: this one lacks %s", s)
		}
	}
	return nil
}

func (a *API) listSessions(ctx context.Context, p account.Principal, _ *struct{}) (list[sessionView], error) {
	if err := wholeUser(p); err != nil {
		return list[sessionView]{}, err
	}
	all, err := a.accounts.Sessions(ctx, p)
	return cut(all, len(all), viewSession, func(account.Session) string { return "" }), err
}

func (a *API) endSession(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	if err := wholeUser(p); err != nil {
		return nothing{}, err
	}
	s, err := pathID[id.Session](in.ID, "session")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.accounts.EndSession(ctx, p, s)
}
