package api

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
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

// signUp hashes before the transaction: it takes tens of milliseconds of CPU.
func (a *API) signUp(ctx context.Context, caller account.Principal, in *signUpInput,
	once idem.Request) (idem.Answer, signUpView, error) {
	prepared, err := a.accounts.PrepareSignUp(ctx, account.SignUp{
		Email: in.Body.Email, Password: in.Body.Password, Name: in.Body.Name, Address: caller.Address,
	})
	if err != nil {
		return idem.Answer{}, signUpView{}, err
	}
	answer, err := a.once(ctx, once, http.StatusCreated, func(ctx context.Context, tx *db.Tx) (any, error) {
		p, err := a.accounts.SignUp(ctx, tx, prepared)
		if err != nil {
			return nil, err
		}
		_, secret, err := a.accounts.CreateToken(ctx, tx, p, account.NewToken{Name: "sign-up", Scopes: account.Scopes()})
		if err != nil {
			return nil, err
		}
		now, err := tx.Now(ctx)
		return signUpView{
			User: userView{ID: p.User, Email: p.Email, Name: p.OrgName, CreatedAt: now},
			Org:  orgView{p.Org, p.OrgName, true, "UTC"}, Token: secret,
		}, err
	})
	return answer, signUpView{}, err
}

// sendVerification mails the link again.
func (a *API) sendVerification(ctx context.Context, tx *db.Tx, p account.Principal,
	_ *verificationInput) (sentView, error) {
	return sentView{p.Email}, a.accounts.SendVerification(ctx, tx, p)
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

func (a *API) createToken(ctx context.Context, tx *db.Tx, p account.Principal,
	in *newTokenInput) (newTokenView, error) {
	t, secret, err := a.accounts.CreateToken(ctx, tx, p, account.NewToken{
		Name: in.Body.Name, Scopes: in.Body.Scopes, Expires: time.Duration(in.Body.ExpiresIn) * time.Second,
	})
	return newTokenView{viewToken(t), secret}, err
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

func (a *API) addSSHKey(ctx context.Context, tx *db.Tx, p account.Principal, in *newSSHKeyInput) (sshKeyView, error) {
	k, err := a.accounts.AddSSHKey(ctx, tx, p, in.Body.Name, in.Body.PublicKey)
	return viewSSHKey(k), err
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
