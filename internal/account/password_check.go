package account

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
)

// Passwords checks, changes and resets the passwords of users.
type Passwords struct {
	*core
	members *Members
}

// Check is nil when password is that of p's user. Attempts count as sign-ins. Faults: Invalid, RateLimited,
// Unavailable.
func (ps *Passwords) Check(ctx context.Context, p Principal, password string) error {
	wrong := fault.InvalidField("password", "is wrong")
	if len(password) > 4*MaxPassword {
		return wrong
	}
	passed, err := ps.countSignIn(ctx, p.Email, p.Address)
	if err != nil {
		return err
	}
	user, err := ps.db.Q.UserForSignIn(ctx, p.Email)
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	ok, _, err := ps.hasher.check(ctx, user.PasswordHash, password)
	if err != nil {
		return fmt.Errorf("check password: %w", err)
	}
	if !ok {
		return wrong
	}
	return passed(ctx)
}

// Change sets a new password after checking the old one, and ends all other sessions of the user; with
// revokeTokens also their API tokens in every org, but not the one it is called with. Faults: Invalid (a wrong old
// password too: the caller is signed in, and it is a field of the form), RateLimited, Conflict.
func (ps *Passwords) Change(ctx context.Context, p Principal, old, fresh string, revokeTokens bool) error {
	var bad fault.Fields
	checkPassword(&bad, "new_password", fresh, p.Email)
	if err := bad.Err(); err != nil {
		return err
	}
	passed, err := ps.countSignIn(ctx, p.Email, p.Address)
	if err != nil {
		return err
	}
	user, err := ps.db.Q.UserForSignIn(ctx, p.Email)
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	ok, _, err := ps.hasher.check(ctx, user.PasswordHash, old)
	if err != nil {
		return err
	}
	if !ok {
		return fault.InvalidField("old_password", "is wrong")
	}
	hash, err := ps.hasher.hash(ctx, fresh)
	if err != nil {
		return err
	}
	err = ps.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Q.UserPasswordHash(ctx, p.User)
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		if now.PasswordHash != user.PasswordHash {
			return fault.New(fault.Conflict, "the password was changed a moment ago from elsewhere: try again")
		}
		detail, err := setPassword(ctx, tx, p.User, hash, p.Session, revokeTokens, p.Token)
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, p.Event("user.password", p.User.String(), detail))
	})
	return errors.Join(err, passed(ctx))
}
