package api

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
)

// A route of the platform's admins asks for the user's own standing, too: a principal that has the scope and is no
// admin is refused.
func TestTheScopeAloneMakesNoAdmin(t *testing.T) {
	t.Parallel()
	p := account.Principal{Scopes: append(account.Scopes(), account.ScopeAdmin)}
	if err := platformAdmin.check(p, nil); !fault.Is(err, fault.Forbidden) {
		t.Errorf("no admin: %v", err)
	}
	if p.Admin = true; platformAdmin.check(p, nil) != nil {
		t.Error("an admin is refused")
	}
}
