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
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

const (
	resetLife   = time.Hour // of a link
	resetTries  = 5         // links per account and window
	resetWindow = 24 * time.Hour
)

// setPassword stores a password's hash and ends all sessions of the user but keep; with revoke also their tokens in
// every org but spare. It returns what to record.
func setPassword(ctx context.Context, tx *db.Tx, user id.User, hash string, keep id.Session, revoke bool,
	spare id.Token) (map[string]any, error) {
	if err := tx.Q.SetPasswordHash(ctx, hash, user); err != nil {
		return nil, fmt.Errorf("set password: %w", err)
	}
	if _, err := tx.Q.UsePasswordResets(ctx, user); err != nil {
		return nil, fmt.Errorf("use up links: %w", err)
	}
	if err := tx.Q.DeleteEmailChangesOfUser(ctx, user); err != nil {
		return nil, fmt.Errorf("end e-mail changes: %w", err)
	}
	if err := endDeviceLogins(ctx, tx, user); err != nil {
		return nil, err
	}
	kept, err := keep.UUIDValue()
	if err != nil {
		return nil, err
	}
	ended, err := tx.Q.DeleteSessionsOfUser(ctx, user, kept)
	if err != nil {
		return nil, fmt.Errorf("delete sessions: %w", err)
	}
	detail := map[string]any{"sessions": ended}
	if !revoke {
		return detail, nil
	}
	tokens, err := tx.Q.TokensOfUser(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("find tokens: %w", err)
	}
	var others []id.Token
	for _, t := range tokens {
		if t != spare {
			others = append(others, t)
		}
	}
	revoked, err := revokeTokens(ctx, tx, others...)
	detail["tokens_revoked"] = revoked
	return detail, err
}

// takeOver ends what the person left who signed up with the address of a user that was never verified: besides sessions
// and tokens, all that gives access to the user's organisations or acts in their name. It adds what it did to detail.
func (ps *Passwords) takeOver(ctx context.Context, tx *db.Tx, user id.User, detail map[string]any) error {
	keys, err := tx.Q.DeleteSSHKeysOfUser(ctx, user)
	if err != nil {
		return fmt.Errorf("delete SSH keys: %w", err)
	}
	detail["ssh_keys"] = keys
	if err := removeFactors(ctx, tx, user); err != nil {
		return err
	}
	orgs, err := tx.Q.OrgsOfUser(ctx, user)
	if err != nil {
		return fmt.Errorf("find organisations of %s: %w", user, err)
	}
	revoked := detail["tokens_revoked"] // by the new password; there are none left
	for _, o := range orgs {
		if err := ps.members.endRights(ctx, tx, o.OrgID, user, "", detail); err != nil {
			return err
		}
		detail["tokens_revoked"] = revoked
		if o.OtherOwners > 0 { // they answer for the organisation
			continue
		}
		if _, err := tx.Q.EraseOrgLegal(ctx, o.OrgID); err != nil {
			return fmt.Errorf("erase legal details of %s: %w", o.OrgID, err)
		}
		if ps.cfg.TakenOver == nil {
			continue
		}
		if err := ps.cfg.TakenOver(ctx, tx, o.OrgID); err != nil {
			return err
		}
	}
	return nil
}

// SendReset mails a link to set a new password to the address, if it has an account. The answer is the same if
// it has none, or if the account was sent too many links already. Faults: Invalid, RateLimited (by the caller's
// address), Unavailable (no mail goes out here).
func (ps *Passwords) SendReset(ctx context.Context, email, from string) error {
	if ps.cfg.Post == nil {
		return fault.New(fault.Unavailable, "this platform sends no mail: ask its operator")
	}
	address, err := normalEmail(email)
	if err != nil {
		return err
	}
	if err := countAttempt(ctx, ps.db.Q, "reset-from:"+prefix(from), ps.cfg.SignUpsPerHour, signUpWindow); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(address))
	err = countAttempt(ctx, ps.db.Q, "reset:"+hex.EncodeToString(sum[:]), resetTries, resetWindow)
	if fault.Is(err, fault.RateLimited) {
		return nil
	}
	if err != nil {
		return err
	}
	user, err := ps.db.Q.UserForSignIn(ctx, address)
	if db.NoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	return ps.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		secret := newSecret()
		if err := tx.Q.InsertPasswordReset(ctx, dbq.InsertPasswordResetParams{
			SecretHash: hashSecret(secret), UserID: user.ID, Address: address, LifeS: resetLife.Seconds()}); err != nil {
			return fmt.Errorf("insert password reset: %w", err)
		}
		verified, err := tx.Q.EmailVerified(ctx, user.ID)
		if err != nil {
			return fmt.Errorf("read user %s: %w", user.ID, err)
		}
		note := ""
		if !verified {
			note = "This address was not confirmed since the account was made, so someone else may have created it. A new " +
				"password therefore also releases its clusters, takes its hosts out of the market, and removes its cards, " +
				"keys, tokens and legal details. If it is yours and something runs there, confirm the address first: sign " +
				"in, or open the link that was sent when you signed up.\n\n"
		}
		err = ps.cfg.Post(ctx, tx, Letter{User: user.ID, To: address, Subject: "Set a new password", Body: fmt.Sprintf(
			"Someone, probably you, asked for a new password for the account of this e-mail address at %s.\n\n"+
				"To set one, open within an hour:\n\n%s/reset-password/%s\n\n%s"+
				"If it was not you, ignore this mail: your password stays as it is.\n", ps.cfg.PublicURL, ps.cfg.PublicURL, secret,
			note)})
		if err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Event{
			User:    user.ID,
			Action:  "user.password_reset_sent",
			Object:  user.ID.String(),
			Address: from,
		})
	})
}

// Reset sets a new password with the secret of a link, ends all sessions of the user, and with revokeTokens
// their API tokens. The link proves the e-mail address: it counts as verified afterwards. If it was not verified
// before, someone else may have signed up with it: then what they left ends. Tokens are revoked in any case; SSH keys,
// second factors, invitations, enrolment tokens and the organisation's legal details are deleted; and Config.TakenOver
// ends the rest. Faults: NotFound for a link that was used or is too old, Invalid, RateLimited.
func (ps *Passwords) Reset(ctx context.Context, secret, fresh, from string, revokeTokens bool) error {
	gone := fault.New(fault.NotFound, "this link was used already or is too old: ask for a new one on the sign-in page")
	if len(secret) != secretLen {
		return gone
	}
	if err := countAttempt(ctx, ps.db.Q, "reset-use:"+prefix(from), ps.cfg.AddressTries, signInWindow); err != nil {
		return err
	}
	var bad fault.Fields
	checkPassword(&bad, "new_password", fresh, "")
	if err := bad.Err(); err != nil {
		return err
	}
	hash, err := ps.hasher.hash(ctx, fresh)
	if err != nil {
		return err
	}
	return ps.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		u, err := tx.Q.PasswordResetUser(ctx, hashSecret(secret))
		if db.NoRows(err) {
			return gone
		}
		if err != nil {
			return fmt.Errorf("find password reset: %w", err)
		}
		var bad fault.Fields
		checkPassword(&bad, "new_password", fresh, u.Email)
		if err := bad.Err(); err != nil {
			return err
		}
		if n, err := tx.Q.UsePasswordResets(ctx, u.ID); err != nil || n == 0 { // none: another request was first
			return errors.Join(err, gone)
		}
		detail, err := setPassword(ctx, tx, u.ID, hash, id.Session{}, revokeTokens || !u.Verified, id.Token{})
		if err != nil {
			return err
		}
		if !u.Verified {
			if err := ps.takeOver(ctx, tx, u.ID, detail); err != nil {
				return err
			}
		}
		if _, err := tx.Q.VerifyEmail(ctx, u.ID, u.Email); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		return audit.Record(ctx, tx, audit.Event{
			User:    u.ID,
			Action:  "user.password_reset",
			Object:  u.ID.String(),
			Detail:  detail,
			Address: from,
		})
	})
}
