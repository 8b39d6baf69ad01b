package account

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Verifications proves that users own their e-mail addresses.
type Verifications struct {
	*core
	passwords *Passwords
}

// Letter is a mail to a user.
type Letter struct {
	User              id.User
	To, Subject, Body string
}

const (
	verifyLife   = 24 * time.Hour // of a link
	verifyTries  = 5              // links per user
	verifyWindow = 24 * time.Hour
)

// send mails the link that proves an address; nothing where no mail goes out.
func (v *Verifications) send(ctx context.Context, tx *db.Tx, p Principal) error {
	if v.cfg.Post == nil {
		return nil
	}
	secret := newSecret()
	if err := tx.Q.InsertEmailVerification(ctx, dbq.InsertEmailVerificationParams{
		SecretHash: hashSecret(secret), UserID: p.User, Address: p.Email, LifeS: verifyLife.Seconds()}); err != nil {
		return fmt.Errorf("insert verification: %w", err)
	}
	return v.cfg.Post(ctx, tx, Letter{User: p.User, To: p.Email, Subject: "Confirm your e-mail address", Body: fmt.Sprintf(
		"Someone, probably you, has an account at %s with this e-mail address.\n\nTo confirm that the address is yours, "+
			"open within 24 hours:\n\n%s/verify-email/%s\n\n"+
			"If it was not you, do not confirm it. You can ignore this mail, or take the account over by setting a new "+
			"password at %s/forgot-password, which ends everything that was set up with it.\n",
		v.cfg.PublicURL, v.cfg.PublicURL, secret, v.cfg.PublicURL)})
}

// Send mails the link again and returns the address that it goes to. Faults: Conflict (the address is
// verified), RateLimited, Unavailable (no mail goes out here).
func (v *Verifications) Send(ctx context.Context, p Principal, once idem.Request) (to string, _ idem.Outcome,
	err error) {
	return idem.Once(ctx, v.db, once, func(ctx context.Context, tx *db.Tx) (string, error) {
		return p.Email, v.resend(ctx, tx, p)
	})
}

func (v *Verifications) resend(ctx context.Context, tx *db.Tx, p Principal) error {
	if v.cfg.Post == nil {
		return fault.New(fault.Unavailable, "this platform sends no mail: ask its operator")
	}
	verified, err := tx.Q.EmailVerified(ctx, p.User)
	if err != nil {
		return fmt.Errorf("read user %s: %w", p.User, err)
	}
	if verified {
		return fault.New(fault.Conflict, "your e-mail address is verified already")
	}
	if err := countAttempt(ctx, tx.Q, "verify:"+p.User.String(), verifyTries, verifyWindow); err != nil {
		return err
	}
	if err := v.send(ctx, tx, p); err != nil {
		return err
	}
	return audit.Record(ctx, tx, p.Event("user.verification_sent", p.User.String(), nil))
}

// VerifyEmail uses the secret of a mailed link: the address that it was sent to is verified. The link proves who reads
// the mail, and not who signed up: anyone can sign up with someone else's address. So who, the principal of the
// browser, must be the account's user, or password must be the account's. The owner of an address with which a stranger
// signed up has neither: Passwords.Reset takes the account over.
//
// Faults: NotFound for a link that was used, is too old, or is for an address that the user no longer has; Invalid with
// the location "password" if it is needed, or wrong; RateLimited. from is the address of the caller.
func (v *Verifications) VerifyEmail(ctx context.Context, who Principal, secret, password, from string) error {
	gone := fault.New(fault.NotFound, "this link was used already or is too old: your account page says whether your "+
		"e-mail address is verified, and sends a new link")
	if len(secret) != secretLen {
		return gone
	}
	u, err := v.db.Q.EmailVerificationUser(ctx, hashSecret(secret))
	if db.NoRows(err) {
		return gone
	}
	if err != nil {
		return fmt.Errorf("find verification: %w", err)
	}
	if who.User != u.ID {
		if err := v.checkOwnPassword(ctx, u, password, from); err != nil {
			return err
		}
	}
	return v.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return verifyEmail(ctx, tx, gone, secret, from) })
}

// checkOwnPassword verifies the password of the account whose address a link verifies. Attempts count as sign-ins.
func (v *Verifications) checkOwnPassword(ctx context.Context, u dbq.EmailVerificationUserRow, password,
	from string) error {
	if password == "" || len(password) > 4*MaxPassword {
		return fault.InvalidField("password", "is needed: the password with which you signed up")
	}
	passed, err := v.passwords.countSignIn(ctx, u.Email, from)
	if err != nil {
		return err
	}
	ok, _, err := v.hasher.check(ctx, u.PasswordHash, password)
	if err != nil {
		return fmt.Errorf("check password: %w", err)
	}
	if !ok {
		return fault.InvalidField("password", "is wrong")
	}
	return passed(ctx)
}

func verifyEmail(ctx context.Context, tx *db.Tx, gone error, secret, from string) error {
	v, err := tx.Q.UseEmailVerification(ctx, hashSecret(secret))
	if db.NoRows(err) {
		return gone
	}
	if err != nil {
		return fmt.Errorf("use verification: %w", err)
	}
	n, err := tx.Q.VerifyEmail(ctx, v.UserID, v.Address)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if n == 0 {
		return gone
	}
	return audit.Record(ctx, tx, audit.Event{
		User:    v.UserID,
		Action:  "user.email_verified",
		Object:  v.UserID.String(),
		Address: from,
	})
}
