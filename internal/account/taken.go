package account

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
)

// A sign-up answers with a token at once, so it cannot hide that an e-mail address has an account: ADR 34. What it can
// do is to make the answer expensive to collect, and to let the owner of the address know.

const (
	takenWindow = time.Hour
	takenLetter = 24 * time.Hour // at most one mail to an address in this time
)

func takenFrom(address string) string { return "signup-taken:" + prefix(address) }

// mayMeetTaken refuses a sign-up from an address that has collected Config.TakenPerHour answers that an e-mail address
// is taken, before this one is looked up. Fault: RateLimited.
func (su *SignUps) mayMeetTaken(ctx context.Context, address string) error {
	if prefix(address) == "" {
		return nil
	}
	r, err := su.db.Q.Attempts(ctx, takenWindow.Seconds(), takenFrom(address))
	if db.NoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	if int(r.Failures) < su.cfg.TakenPerHour {
		return nil
	}
	return tooManyAttempts(r.SecondsLeft)
}

// after returns err. If it is the fault that the e-mail address is taken, it counts against the caller's address,
// and the account's owner gets a mail, once a day at most.
func (su *SignUps) after(ctx context.Context, s preparedSignUp, err error) error {
	if !fault.Is(err, fault.Conflict) || len(fault.From(err).Fields) == 0 ||
		fault.From(err).Fields[0].Location != "email" {
		return err
	}
	if from := prefix(s.address); from != "" {
		if _, err := su.db.Q.CountAttempt(ctx, takenFrom(s.address), takenWindow.Seconds()); err != nil {
			return fmt.Errorf("count attempt: %w", err)
		}
	}
	if su.cfg.Post == nil {
		return err
	}
	return errors.Join(err, su.warnOwner(ctx, s))
}

// warnOwner mails the owner of an account that someone tried to sign up with its e-mail address.
func (su *SignUps) warnOwner(ctx context.Context, s preparedSignUp) error {
	sum := sha256.Sum256([]byte(s.email))
	err := countAttempt(ctx, su.db.Q, "signup-letter:"+hex.EncodeToString(sum[:]), 1, takenLetter)
	if fault.Is(err, fault.RateLimited) {
		return nil
	}
	if err != nil {
		return err
	}
	u, err := su.db.Q.UserForSignIn(ctx, s.email)
	if db.NoRows(err) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	return su.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := su.cfg.Post(ctx, tx, Letter{User: u.ID, To: s.email, Subject: "You have an account already",
			Body: fmt.Sprintf("Someone, perhaps you, tried to create an account with this e-mail address at %s, which has one "+
				"already. Nothing was changed.\n\nIf it was you, sign in at %s/signin, or set a new password at "+
				"%s/forgot-password. If it was not you, ignore this mail.\n", su.cfg.PublicURL, su.cfg.PublicURL,
				su.cfg.PublicURL)}); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Event{
			User:    u.ID,
			Action:  "user.sign_up_again",
			Object:  u.ID.String(),
			Address: s.address,
		})
	})
}
