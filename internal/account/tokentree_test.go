package account_test

import (
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// issue makes a token by p and returns who presents it.
func issue(t *testing.T, a *account.Accounts, p account.Principal, n account.NewToken) (account.Principal, string) {
	t.Helper()
	n.Name = "token"
	_, secret, err := a.Tokens.Issue(t.Context(), p, n)
	if err != nil {
		t.Fatal(err)
	}
	q, err := a.Tokens.Principal(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	return q, secret
}

func TestDemotionReachesTokens(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	register(t, a, "ada@example.com")
	if err := a.SetAdmin(t.Context(), "ada@example.com", true); err != nil {
		t.Fatal(err)
	}
	_, ada, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	root, secret := issue(t, a, ada, account.NewToken{Scopes: append(account.Scopes(), account.ScopeAdmin)})
	_, child := issue(t, a, root, account.NewToken{Scopes: []string{account.ScopeRead}})
	_, plain := issue(t, a, ada, account.NewToken{Scopes: account.Scopes()})

	exec(t, d, "UPDATE app_user SET admin = false") // by hand in the database: nothing is revoked
	q, err := a.Tokens.Principal(t.Context(), secret)
	if err != nil || q.Admin || q.Can(account.ScopeAdmin) || !q.Can(account.ScopeBilling) {
		t.Errorf("a demoted admin's token: %+v, %v", q, err)
	}
	if _, _, err := a.Tokens.Issue(t.Context(), q, account.NewToken{
		Name:   "x",
		Scopes: []string{account.ScopeAdmin},
	}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("it makes an admin's token: %v", err)
	}

	if err := a.SetAdmin(t.Context(), "ada@example.com", false); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{"with the scope": secret, "made with it": child} {
		if _, err := a.Tokens.Principal(t.Context(), s); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("a token %s outlives the demotion: %v", name, err)
		}
	}
	if _, err := a.Tokens.Principal(t.Context(), plain); err != nil {
		t.Errorf("a token without the scope was revoked: %v", err)
	}
	trail, err := audit.Search(t.Context(), d.Q, audit.Filter{Action: "user.admin"}, id.Audit{}, 1)
	if err != nil || len(trail) != 1 {
		t.Fatal(trail, err)
	}
	if revoked, _ := trail[0].Detail["tokens_revoked"].([]any); len(revoked) != 2 || trail[0].Object != ada.User.String() {
		t.Errorf("audit event %+v", trail[0])
	}
}

func TestTokensDoNotOutliveTheirMaker(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{})
	ada := register(t, a, "ada@example.com")
	ada.Scopes = account.Scopes()
	read := []string{account.ScopeRead}
	short, _ := issue(t, a, ada, account.NewToken{Scopes: append(read, account.ScopeClusters), Expires: time.Hour})
	if _, _, err := a.Tokens.Issue(t.Context(), short, account.NewToken{
		Name:    "x",
		Scopes:  read,
		Expires: 2 * time.Hour,
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a token for longer than its maker: %v", err)
	}
	tok, _, err := a.Tokens.Issue(t.Context(), short, account.NewToken{Name: "x", Scopes: read})
	if err != nil || tok.ExpiresAt == nil {
		t.Fatalf("a token that never expires, made with one that does: %+v, %v", tok, err)
	}
	if _, _, err := a.Tokens.Issue(t.Context(), short, account.NewToken{
		Name:   "x",
		Scopes: []string{account.ScopeBilling},
	}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a token that can do more than its maker: %v", err)
	}

	child, childSecret := issue(t, a, short, account.NewToken{Scopes: read, Expires: time.Minute})
	_, grandchild := issue(t, a, child, account.NewToken{Scopes: read})
	_, other := issue(t, a, ada, account.NewToken{Scopes: read})
	if err := a.Tokens.Revoke(t.Context(), ada, short.Token); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{"child": childSecret, "grandchild": grandchild} {
		if _, err := a.Tokens.Principal(t.Context(), s); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("a %s outlives the revocation: %v", name, err)
		}
	}
	if _, err := a.Tokens.Principal(t.Context(), other); err != nil {
		t.Errorf("an unrelated token was revoked: %v", err)
	}
	left, err := a.Tokens.List(t.Context(), ada, account.Page[id.Token]{Limit: 10})
	if err != nil || slices.ContainsFunc(left, func(t account.Token) bool { return t.ID == child.Token }) {
		t.Errorf("listed: %+v, %v", left, err)
	}
	if _, _, err := a.Tokens.Issue(t.Context(), short, account.NewToken{
		Name:   "x",
		Scopes: read,
	}); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("a revoked token made a token: %v", err)
	}
}
