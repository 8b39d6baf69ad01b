package api

import (
	"context"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// tokensAPI answers the routes of API tokens and SSH keys.
type tokensAPI struct {
	accounts *account.Accounts
	cfg      Config
}

func viewToken(t account.Token) client.Token {
	return client.Token{
		ID:         t.ID,
		Name:       t.Name,
		Hint:       t.Hint,
		Scopes:     t.Scopes,
		CreatedAt:  t.CreatedAt.UTC(),
		ExpiresAt:  utc(t.ExpiresAt),
		LastUsedAt: utc(t.LastUsedAt),
	}
}

func (a tokensAPI) listTokens(ctx context.Context, p account.Principal, in *client.PageOf) (list[client.Token], error) {
	after, err := cursor[id.Token](*in)
	if err != nil {
		return list[client.Token]{}, err
	}
	rows, err := a.accounts.Tokens.List(ctx, p, account.Page[id.Token]{After: after, Limit: in.Limit + 1})
	return cut(rows, in.Limit, viewToken, func(t account.Token) string { return t.ID.String() }), err
}

func (a tokensAPI) createToken(ctx context.Context, p account.Principal, in *create[client.CreateTokenRequest],
	once idem.Request) (client.NewToken, idem.Outcome, error) {
	view := func(t account.IssuedToken) client.NewToken {
		return client.NewToken{Token: viewToken(t.Token), Secret: t.Secret}
	}
	t, out, err := a.accounts.Tokens.Create(ctx, p, account.NewToken{
		Name: in.Body.Name, Scopes: in.Body.Scopes, Expires: time.Duration(in.Body.ExpiresIn) * time.Second,
	}, idem.As(once, view))
	return view(t), out, err
}

func (a tokensAPI) revokeToken(ctx context.Context, p account.Principal, in *of[id.Token]) (nothing, error) {
	return nothing{}, a.accounts.Tokens.Revoke(ctx, p, in.ID)
}

func viewSSHKey(k account.SSHKey) client.SSHKey {
	return client.SSHKey{
		ID:          k.ID,
		Name:        k.Name,
		PublicKey:   k.PublicKey,
		Fingerprint: k.Fingerprint,
		CreatedAt:   k.CreatedAt.UTC(),
	}
}

func (a tokensAPI) listSSHKeys(ctx context.Context, p account.Principal,
	in *client.PageOf) (list[client.SSHKey], error) {
	after, err := cursor[id.SSHKey](*in)
	if err != nil {
		return list[client.SSHKey]{}, err
	}
	rows, err := a.accounts.SSHKeys.List(ctx, p, account.Page[id.SSHKey]{After: after, Limit: in.Limit + 1})
	return cut(rows, in.Limit, viewSSHKey, func(k account.SSHKey) string { return k.ID.String() }), err
}

func (a tokensAPI) addSSHKey(ctx context.Context, p account.Principal, in *create[client.AddSSHKeyRequest],
	once idem.Request) (client.SSHKey, idem.Outcome, error) {
	k, out, err := a.accounts.SSHKeys.Add(ctx, p, in.Body.Name, in.Body.PublicKey, idem.As(once, viewSSHKey))
	return viewSSHKey(k), out, err
}

func (a tokensAPI) deleteSSHKey(ctx context.Context, p account.Principal, in *of[id.SSHKey]) (nothing, error) {
	return nothing{}, a.accounts.SSHKeys.Delete(ctx, p, in.ID)
}

func (a tokensAPI) sshGateway(context.Context, account.Principal, *struct{}) (client.SSHGateway, error) {
	if a.cfg.GatewayAddr == "" {
		return client.SSHGateway{}, fault.New(fault.NotFound, "this platform has no SSH gateway")
	}
	return client.SSHGateway{Address: a.cfg.GatewayAddr, HostKeys: a.cfg.SSHHostKeys}, nil
}
