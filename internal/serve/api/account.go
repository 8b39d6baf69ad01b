package api

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

type userView struct {
	ID        id.User   `json:"id"`
	Email     string    `json:"email"`
	Name      string    `json:"name"`
	Admin     bool      `json:"admin"`
	Verified  bool      `json:"email_verified" doc:"the e-mail address is known to be the user's"`
	CreatedAt time.Time `json:"created_at"`
}

type orgView struct {
	ID       id.Org `json:"id"`
	Name     string `json:"name"`
	Personal bool   `json:"personal"`
	Zone     string `json:"zone" doc:"the IANA time zone in which its days, months and years begin" example:"Europe/Berlin"`
}

type meView struct {
	User   userView `json:"user"`
	Org    orgView  `json:"org"`
	Scopes []string `json:"scopes" doc:"what this token may do"`
	Token  id.Token `json:"token_id"`
}

func (a *API) me(ctx context.Context, p account.Principal, _ *struct{}) (meView, error) {
	v, err := a.accounts.Profile(ctx, p)
	if err != nil {
		return meView{}, err
	}
	return meView{
		User:   userView{v.User, v.Email, v.Name, v.Admin, v.Verified, v.CreatedAt.UTC()},
		Org:    orgView{v.Org, v.OrgName, v.Personal, v.Zone},
		Scopes: p.Scopes, Token: p.Token,
	}, nil
}

type signUpInput struct {
	Keyed
	Body struct {
		Email    string `json:"email"`
		Password string `json:"password" doc:"10 to 200 characters" writeOnly:"true"`
		Name     string `json:"name,omitempty" doc:"of you and of your organisation"`
	}
}

type signUpView struct {
	User  userView `json:"user"`
	Org   orgView  `json:"org"`
	Token string   `json:"token" doc:"an API token with all scopes; shown once"`
}

func (a *API) signUp(ctx context.Context, caller account.Principal, in *signUpInput,
	once idem.Request) (signUpView, idem.Outcome, error) {
	u, out, err := a.accounts.SignUp(ctx, account.SignUp{
		Email: in.Body.Email, Password: in.Body.Password, Name: in.Body.Name, Address: caller.Address,
	}, idem.As(once, viewSignUp))
	return viewSignUp(u), out, err
}

func viewSignUp(u account.SignedUp) signUpView {
	return signUpView{
		User: userView{ID: u.User, Email: u.Email, Name: u.OrgName, CreatedAt: u.CreatedAt},
		Org:  orgView{u.Org, u.OrgName, true, "UTC"}, Token: u.Token,
	}
}

// sendVerification mails the link again.
func (a *API) sendVerification(ctx context.Context, p account.Principal, _ *verificationInput,
	once idem.Request) (sentView, idem.Outcome, error) {
	view := func(to string) sentView { return sentView{to} }
	to, out, err := a.accounts.SendVerification(ctx, p, idem.As(once, view))
	return view(to), out, err
}

type verificationInput struct{ Keyed }

type sentView struct {
	To string `json:"to" doc:"the address the link went to"`
}

// TokenView is an API token without its secret. It is exported because the reference leaves out unexported embedded
// types.
type TokenView struct {
	ID         id.Token   `json:"id"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint" doc:"the secret's last four characters"`
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at" doc:"null: never"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

func viewToken(t account.Token) TokenView {
	return TokenView{t.ID, t.Name, t.Hint, t.Scopes, t.CreatedAt.UTC(), utc(t.ExpiresAt), utc(t.LastUsedAt)}
}

func (a *API) listTokens(ctx context.Context, p account.Principal, in *struct{ Page }) (list[TokenView], error) {
	after, err := cursor[id.Token](in.Page)
	if err != nil {
		return list[TokenView]{}, err
	}
	rows, err := a.accounts.Tokens(ctx, p, account.Page[id.Token]{After: after, Limit: in.Limit + 1})
	return cut(rows, in.Limit, viewToken, func(t account.Token) string { return t.ID.String() }), err
}

type newTokenInput struct {
	Keyed
	Body struct {
		Name      string   `json:"name" doc:"what the token is for"`
		Scopes    []string `json:"scopes" doc:"read, clusters, hosts, billing; within your own"`
		ExpiresIn int64    `json:"expires_in,omitempty" doc:"seconds; left out: never" minimum:"1" maximum:"315360000"`
	}
}

type newTokenView struct {
	TokenView
	Token string `json:"token" doc:"the secret; shown once"`
}

func (a *API) createToken(ctx context.Context, p account.Principal, in *newTokenInput,
	once idem.Request) (newTokenView, idem.Outcome, error) {
	view := func(t account.IssuedToken) newTokenView { return newTokenView{viewToken(t.Token), t.Secret} }
	t, out, err := a.accounts.CreateToken(ctx, p, account.NewToken{
		Name: in.Body.Name, Scopes: in.Body.Scopes, Expires: time.Duration(in.Body.ExpiresIn) * time.Second,
	}, idem.As(once, view))
	return view(t), out, err
}

type idInput struct {
	ID string `path:"id"`
}

func (a *API) revokeToken(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	t, err := pathID[id.Token](in.ID, "token")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.accounts.RevokeToken(ctx, p, t)
}

type sshKeyView struct {
	ID          id.SSHKey `json:"id"`
	Name        string    `json:"name"`
	PublicKey   string    `json:"public_key"`
	Fingerprint string    `json:"fingerprint"`
	CreatedAt   time.Time `json:"created_at"`
}

func viewSSHKey(k account.SSHKey) sshKeyView {
	return sshKeyView{k.ID, k.Name, k.PublicKey, k.Fingerprint, k.CreatedAt.UTC()}
}

func (a *API) listSSHKeys(ctx context.Context, p account.Principal, in *struct{ Page }) (list[sshKeyView], error) {
	after, err := cursor[id.SSHKey](in.Page)
	if err != nil {
		return list[sshKeyView]{}, err
	}
	rows, err := a.accounts.SSHKeys(ctx, p, account.Page[id.SSHKey]{After: after, Limit: in.Limit + 1})
	return cut(rows, in.Limit, viewSSHKey, func(k account.SSHKey) string { return k.ID.String() }), err
}

type newSSHKeyInput struct {
	Keyed
	Body struct {
		Name      string `json:"name,omitempty" doc:"left out: the key's comment"`
		PublicKey string `json:"public_key" doc:"one line of an authorized_keys file"`
	}
}

func (a *API) addSSHKey(ctx context.Context, p account.Principal, in *newSSHKeyInput,
	once idem.Request) (sshKeyView, idem.Outcome, error) {
	k, out, err := a.accounts.AddSSHKey(ctx, p, in.Body.Name, in.Body.PublicKey, idem.As(once, viewSSHKey))
	return viewSSHKey(k), out, err
}

func (a *API) deleteSSHKey(ctx context.Context, p account.Principal, in *idInput) (nothing, error) {
	k, err := pathID[id.SSHKey](in.ID, "SSH key")
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.accounts.DeleteSSHKey(ctx, p, k)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

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

// exportMe sends what is kept of the caller, as a file.
func (a *API) exportMe(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	data, err := a.erasure.Export(r.Context(), p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="my-data.json"`)
	_, err = w.Write(data)
	return err
}

func (a *API) deletionStanding(ctx context.Context, p account.Principal,
	_ *struct{}) (erasure.DeletionStanding, error) {
	return a.erasure.Standing(ctx, p)
}

type deletionInput struct {
	Body struct {
		Password string `json:"password" doc:"yours" writeOnly:"true"`
		Confirm  string `json:"confirm" doc:"your e-mail address"`
		GiveUp   bool   `json:"give_up_balance,omitempty" doc:"give up the money that is left"`
	}
}

func (a *API) deleteMe(ctx context.Context, p account.Principal, in *deletionInput) (nothing, error) {
	return nothing{}, a.erasure.Delete(ctx, p, erasure.Request{
		Password: in.Body.Password,
		Confirm:  in.Body.Confirm,
		GiveUp:   in.Body.GiveUp,
	})
}
