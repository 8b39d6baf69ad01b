package account

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/fault"
)

// CheckPassword is nil when password is that of p's user. Attempts count as sign-ins. Faults: Invalid, RateLimited,
// Unavailable.
func (a *Accounts) CheckPassword(ctx context.Context, p Principal, password string) error {
	wrong := fault.InvalidField("password", "is wrong")
	if len(password) > 4*MaxPassword {
		return wrong
	}
	passed, err := a.countSignIn(ctx, p.Email, p.Address)
	if err != nil {
		return err
	}
	user, err := a.db.Q.UserForSignIn(ctx, p.Email)
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	ok, _, err := a.hasher.check(ctx, user.PasswordHash, password)
	if err != nil {
		return fmt.Errorf("check password: %w", err)
	}
	if !ok {
		return wrong
	}
	return passed(ctx)
}
