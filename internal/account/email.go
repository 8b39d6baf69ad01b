package account

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
)

const (
	emailChangeLife  = time.Hour
	emailChangeTries = 5 // links per user and day
)

// EmailChanges gives users another e-mail address, once they have proved that they own it.
type EmailChanges struct {
	*core
	passwords *Passwords
}

// Begin mails a link to a new e-mail address of the principal's user. It needs the password. The answer is
// the same for an address that has an account. Faults: Invalid, RateLimited, Unavailable.
func (ec *EmailChanges) Begin(ctx context.Context, p Principal, email, password string) error {
	if ec.cfg.Post == nil {
		return fault.New(fault.Unavailable, "this platform sends no mail: ask its operator")
	}
	address, err := normalEmail(email)
	if err != nil {
		return err
	}
	if address == p.Email {
		return fault.InvalidField("email", "is your address already")
	}
	if err := ec.passwords.Check(ctx, p, password); err != nil {
		return err
	}
	return ec.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := countAttempt(ctx, tx.Q, "email-change:"+p.User.String(), emailChangeTries, 24*time.Hour); err != nil {
			return err
		}
		secret := newSecret()
		if err := tx.Q.InsertEmailChange(ctx, dbq.InsertEmailChangeParams{SecretHash: hashSecret(secret), UserID: p.User,
			Was: p.Email, Address: address, LifeS: emailChangeLife.Seconds()}); err != nil {
			return fmt.Errorf("insert e-mail change: %w", err)
		}
		if err := ec.warnUser(ctx, tx, p.User, address, "Confirm your new e-mail address", fmt.Sprintf("Someone, probably "+
			"you, wants to use this e-mail address for their account at %s.\n\nTo confirm, open within an hour, in a browser "+
			"where you are signed in:\n\n%s/change-email/%s\n\nIf it was not you, ignore this mail.\n", ec.cfg.PublicURL,
			ec.cfg.PublicURL, secret)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, p.Event("user.email_change_sent", p.User.String(), nil))
	})
}

func errEmailChange() error {
	return fault.New(fault.NotFound, "this link was used already, is too old, or belongs to another account: sign in "+
		"to the "+
		"account that it is for, or begin again on the account page")
}

// Address returns the address to which a link changes that of the principal's user. Fault: NotFound.
func (ec *EmailChanges) Address(ctx context.Context, p Principal, secret string) (string, error) {
	if len(secret) != secretLen {
		return "", errEmailChange()
	}
	address, err := ec.db.Q.EmailChangeAddress(ctx, hashSecret(secret), p.User)
	if db.NoRows(err) {
		return "", errEmailChange()
	}
	if err != nil {
		return "", fmt.Errorf("find e-mail change: %w", err)
	}
	return address, nil
}

// Confirm uses a mailed link: the user, who has to be signed in, has the new address, which counts as
// verified, and the old one gets a mail. Links to the old address end. Faults: NotFound, Conflict (another account
// has the address).
func (ec *EmailChanges) Confirm(ctx context.Context, p Principal, secret string) error {
	return ec.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		user, err := tx.Q.LockUser(ctx, p.User)
		if err != nil {
			return fmt.Errorf("lock user %s: %w", p.User, err)
		}
		address, err := tx.Q.TakeEmailChange(ctx, hashSecret(secret), p.User, user.Email)
		if db.NoRows(err) {
			return errEmailChange()
		}
		if err != nil {
			return fmt.Errorf("take e-mail change: %w", err)
		}
		err = tx.Q.SetEmail(ctx, address, p.User)
		if db.IsUnique(err, "app_user_email") {
			return fault.New(fault.Conflict, "another account has this e-mail address: you own its mailbox, so sign in to that "+
				"one, or delete it first")
		}
		if err != nil {
			return fmt.Errorf("set e-mail: %w", err)
		}
		if err := tx.Q.DeleteEmailChangesOfUser(ctx, p.User); err != nil {
			return fmt.Errorf("end e-mail changes: %w", err)
		}
		if err := ec.warnUser(ctx, tx, p.User, user.Email, "Your e-mail address was changed", "Your account at "+
			ec.cfg.PublicURL+" has another e-mail address now. Sign in with that one.\n\nIf it was not you, answer this mail "+
			"or write to those who run the platform at once: this address no longer resets the password.\n"); err != nil {
			return err
		}
		return audit.Record(ctx, tx, p.Event("user.email_change", p.User.String(), nil))
	})
}
