package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
)

// A pass counts no longer than the token it was made with: neither the cookie nor the link; who is in is not asked for
// with every request.
func TestAPassEndsWithItsToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	p := newTestApps(t, 1, &now)
	p.nodes.open = func(context.Context, nodeKey) (*dialback.Node, error) {
		return nil, errors.New("the test has no hosts")
	}
	revoked, broken, asked := false, false, 0
	who := pass{
		App:     App{id.New[id.Cluster](), 0, 8888}.label(),
		Org:     id.New[id.Org](),
		User:    id.New[id.User](),
		Token:   id.New[id.Token](),
		Session: id.New[id.Session](),
	}
	p.cfg.StillIn = func(_ context.Context, c account.Credential) (bool, error) {
		asked++
		if c != (account.Credential{
			Org: who.Org, User: who.User, Token: who.Token, Session: who.Session, Scope: account.ScopeClusters,
		}) {
			t.Errorf("asked of %+v", c)
		}
		if broken {
			return false, errors.New("no database")
		}
		return !revoked, nil
	}
	get := func(path string, cookie bool) int {
		r := httptest.NewRequest(http.MethodGet, "https://"+who.App+".apps.muster.example"+path, nil)
		if cookie {
			r.AddCookie(p.cookie(who))
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w.Code
	}
	const through = http.StatusBadGateway // as far as there are hosts
	for range 3 {
		if status := get("/", true); status != through {
			t.Errorf("status %d", status)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	revoked = true
	now = now.Add(checkEvery)
	if status := get("/", true); status != http.StatusForbidden {
		t.Errorf("with a revoked token: %d", status)
	}
	link := who
	link.Kind, link.Expires = passLink, now.Add(LinkTTL).Unix()
	if status := get(openPath+"?pass="+p.sign(link), false); status != http.StatusForbidden {
		t.Errorf("a link of a revoked token: %d", status)
	}
	broken = true
	now = now.Add(checkEvery)
	if status := get("/", true); status != http.StatusInternalServerError {
		t.Errorf("when it cannot be asked: %d", status)
	}
}
