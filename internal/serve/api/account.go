package api

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// accountAPI answers the routes of the caller's account: sign-up, profile, password, sessions, deletion.
type accountAPI struct {
	accounts *account.Accounts
	erasure  *erasure.Erasure
	cfg      Config
}

func (a accountAPI) me(ctx context.Context, p account.Principal, _ *struct{}) (client.Me, error) {
	v, err := a.accounts.Profile(ctx, p)
	if err != nil {
		return client.Me{}, err
	}
	return client.Me{
		User: client.User{
			ID:        v.User,
			Email:     v.Email,
			Name:      v.Name,
			Admin:     v.Admin,
			Verified:  v.Verified,
			CreatedAt: v.CreatedAt.UTC(),
		},
		Org:     client.Org{ID: v.Org, Name: v.OrgName, Personal: v.Personal, Zone: v.Zone},
		Role:    string(v.Role),
		Scopes:  p.Scopes,
		TokenID: p.Token,
	}, nil
}

func (a accountAPI) signUp(ctx context.Context, caller account.Principal, in *create[client.SignUpRequest],
	once idem.Request) (client.SignedUp, idem.Outcome, error) {
	u, out, err := a.accounts.SignUps.SignUp(ctx, account.SignUp{
		Email: in.Body.Email, Password: in.Body.Password, Name: in.Body.Name, Address: caller.Address,
	}, idem.As(once, viewSignUp))
	return viewSignUp(u), out, err
}

func viewSignUp(u account.SignedUp) client.SignedUp {
	return client.SignedUp{
		User: client.User{ID: u.User, Email: u.Email, Name: u.OrgName, CreatedAt: u.CreatedAt},
		Org:  client.Org{ID: u.Org, Name: u.OrgName, Personal: true, Zone: "UTC"}, Token: u.Token,
	}
}

// sendVerification mails the link again.
func (a accountAPI) sendVerification(ctx context.Context, p account.Principal, _ *verificationInput,
	once idem.Request) (client.VerificationSent, idem.Outcome, error) {
	view := func(to string) client.VerificationSent { return client.VerificationSent{To: to} }
	to, out, err := a.accounts.Verifications.Send(ctx, p, idem.As(once, view))
	return view(to), out, err
}

type verificationInput struct{ Keyed }

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func (a accountAPI) changePassword(ctx context.Context, p account.Principal,
	in *replace[client.ChangePasswordRequest]) (client.PasswordChanged, error) {
	err := a.accounts.Passwords.Change(ctx, p, in.Body.Old, in.Body.New, in.Body.RevokeTokens)
	return client.PasswordChanged{Changed: err == nil}, err
}

func viewSession(s account.Session) client.Session {
	return client.Session{
		ID:         s.ID,
		Address:    s.Address,
		UserAgent:  s.UserAgent,
		CreatedAt:  s.CreatedAt.UTC(),
		LastSeenAt: s.LastSeenAt.UTC(),
		ExpiresAt:  s.ExpiresAt.UTC(),
	}
}

// wholeUser is Forbidden for a token that cannot do all that its user can: sessions, and which organisations the user
// is in, are the user's and not the token's.
func wholeUser(p account.Principal) error {
	if !p.Whole() {
		return fault.New(fault.Forbidden, "this is for tokens with all scopes of your role, %s", p.Role)
	}
	return nil
}

func (a accountAPI) listSessions(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Session], error) {
	if err := wholeUser(p); err != nil {
		return list[client.Session]{}, err
	}
	all, err := a.accounts.Sessions.List(ctx, p)
	return cut(all, len(all), viewSession, func(account.Session) string { return "" }), err
}

func (a accountAPI) endSession(ctx context.Context, p account.Principal, in *of[id.Session]) (nothing, error) {
	if err := wholeUser(p); err != nil {
		return nothing{}, err
	}
	return nothing{}, a.accounts.Sessions.End(ctx, p, in.ID)
}

// exportMe sends the caller's personal data, as a file.
func (a accountAPI) exportMe(w http.ResponseWriter, r *http.Request, p account.Principal, _ *struct{}) error {
	data, err := a.erasure.Export(r.Context(), p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="my-data.json"`)
	_, err = w.Write(data)
	return err
}

func (a accountAPI) deletionStanding(ctx context.Context, p account.Principal,
	_ *struct{}) (erasure.DeletionStanding, error) {
	return a.erasure.Standing(ctx, p)
}

func (a accountAPI) deleteMe(ctx context.Context, p account.Principal,
	in *replace[client.DeleteMeRequest]) (nothing, error) {
	return nothing{}, a.erasure.Delete(ctx, p, erasure.Request{
		Password: in.Body.Password,
		Confirm:  in.Body.Confirm,
		GiveUp:   in.Body.GiveUp,
	})
}
