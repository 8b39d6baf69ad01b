package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

// A second factor is a code of an authenticator app (TOTP, RFC 6238), or a recovery code in its place. See ADR 34.

const (
	totpStep       = 30 // s
	totpSkew       = 1  // steps that a clock may be wrong, each way
	recoveryCodes  = 10
	recoveryLen    = 16 // characters of base32: 80 bits
	challengeLife  = 10 * time.Minute
	challengeTries = 5 // codes for one right password
	codesPerDay    = 50
)

// SecondFactors sets second factors up, and finishes the sign-ins that need one.
type SecondFactors struct {
	*core
	passwords *Passwords
	sessions  *Sessions
}

// SecondFactorNeeded is the error of a sign-in whose password was right, for a user who has a second factor.
type SecondFactorNeeded struct {
	Challenge string // secret: FinishSignIn takes it with a code, within 10 minutes
}

func (*SecondFactorNeeded) Error() string {
	return "a second factor is needed: a code of the authenticator app"
}

// TOTPSetup is what a user enters in an authenticator app.
type TOTPSetup struct {
	Secret string // base32
	URL    string // otpauth://, for a QR code
}

// SecondFactor is what a user has set up.
type SecondFactor struct {
	TOTP          bool
	RecoveryCodes int64 // that are left
}

// Of returns what the principal's user has set up.
func (sf *SecondFactors) Of(ctx context.Context, p Principal) (f SecondFactor, err error) {
	if f.TOTP, err = sf.db.Q.HasTOTP(ctx, p.User); err == nil {
		f.RecoveryCodes, err = sf.db.Q.CountRecoveryCodes(ctx, p.User)
	}
	if err != nil {
		return f, fmt.Errorf("read the second factor of %s: %w", p.User, err)
	}
	return f, nil
}

func totpBelongs(user id.User) string { return "totp:" + user.String() }

// BeginTOTP makes a new secret for the user's authenticator app, which counts once ConfirmTOTP was given a code of it.
// It needs the password: a browser that was left open must not lock out its owner. Faults: Invalid, RateLimited,
// Conflict (codes are in use), Unavailable.
func (sf *SecondFactors) BeginTOTP(ctx context.Context, p Principal, password string) (TOTPSetup, error) {
	if sf.cfg.Box == nil {
		return TOTPSetup{}, fault.New(fault.Unavailable, "this platform keeps no secrets of authenticator apps")
	}
	if err := sf.passwords.Check(ctx, p, password); err != nil {
		return TOTPSetup{}, err
	}
	key, err := totp.Generate(totp.GenerateOpts{Issuer: "Muster", AccountName: p.Email})
	if err != nil {
		return TOTPSetup{}, fmt.Errorf("make a TOTP secret: %w", err)
	}
	n, err := sf.db.Q.PutTOTP(ctx, p.User, sf.cfg.Box.Seal([]byte(key.Secret()), totpBelongs(p.User)))
	if err != nil {
		return TOTPSetup{}, fmt.Errorf("store a TOTP secret: %w", err)
	}
	if n == 0 {
		return TOTPSetup{}, fault.New(fault.Conflict, "you have an authenticator app already: remove it first")
	}
	return TOTPSetup{Secret: key.Secret(), URL: key.URL()}, nil
}

// ConfirmTOTP puts the authenticator app into use, with a code of it, and returns new recovery codes, which cannot be
// read again. Faults: Invalid, RateLimited, Conflict.
func (sf *SecondFactors) ConfirmTOTP(ctx context.Context, p Principal, code string) (codes []string, err error) {
	if err := sf.countCode(ctx, p.User, p.Email, p.Address); err != nil {
		return nil, err
	}
	err = sf.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockTOTP(ctx, p.User)
		if err != nil && !db.NoRows(err) {
			return fmt.Errorf("lock the TOTP secret of %s: %w", p.User, err)
		}
		if err != nil || row.Confirmed {
			return fault.New(fault.Conflict, "no authenticator app is being set up: begin again")
		}
		if err := sf.acceptTOTP(ctx, tx, p.User, row, code); err != nil {
			return err
		}
		if codes, err = newRecoveryCodes(ctx, tx, p.User); err != nil {
			return err
		}
		return sf.record(ctx, tx, p, "user.totp_on", "Two-factor sign-in is on",
			"From now on, signing in to your account needs a code of your authenticator app.")
	})
	return codes, err
}

// RemoveTOTP ends two-factor sign-in. It needs the password and a code. Faults: Invalid, RateLimited, Conflict.
func (sf *SecondFactors) RemoveTOTP(ctx context.Context, p Principal, password, code string) error {
	return sf.withBoth(ctx, p, password, code, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.DeleteTOTP(ctx, p.User); err != nil {
			return fmt.Errorf("delete the TOTP secret: %w", err)
		}
		if err := tx.Q.DeleteRecoveryCodes(ctx, p.User); err != nil {
			return fmt.Errorf("delete recovery codes: %w", err)
		}
		return sf.record(ctx, tx, p, "user.totp_off", "Two-factor sign-in is off",
			"Signing in to your account needs only the password again.")
	})
}

// RenewRecoveryCodes replaces the recovery codes. It needs the password and a code. Faults: as RemoveTOTP.
func (sf *SecondFactors) RenewRecoveryCodes(ctx context.Context, p Principal, password, code string) (codes []string,
	err error) {
	err = sf.withBoth(ctx, p, password, code, func(ctx context.Context, tx *db.Tx) error {
		if codes, err = newRecoveryCodes(ctx, tx, p.User); err != nil {
			return err
		}
		return sf.record(ctx, tx, p, "user.recovery_codes", "You have new recovery codes", "The old ones have ended.")
	})
	return codes, err
}

// withBoth runs f in a transaction that has accepted a code, after the password was checked.
func (sf *SecondFactors) withBoth(ctx context.Context, p Principal, password, code string,
	f func(context.Context, *db.Tx) error) error {
	if err := sf.passwords.Check(ctx, p, password); err != nil {
		return err
	}
	if err := sf.countCode(ctx, p.User, p.Email, p.Address); err != nil {
		return err
	}
	return sf.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := sf.acceptCode(ctx, tx, p.User, code); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// record records a change of how the user signs in, and mails them about it.
func (sf *SecondFactors) record(ctx context.Context, tx *db.Tx, p Principal, action, subject, text string) error {
	if err := audit.Record(ctx, tx, p.Event(action, p.User.String(), nil)); err != nil {
		return err
	}
	return sf.warnUser(ctx, tx, p.User, p.Email, subject, text+"\n\nIf it was not you, set a new password at "+
		sf.cfg.PublicURL+"/forgot-password, and look at "+sf.cfg.PublicURL+"/account.\n")
}

func (c *core) warnUser(ctx context.Context, tx *db.Tx, user id.User, to, subject, text string) error {
	if c.cfg.Post == nil {
		return nil
	}
	return c.cfg.Post(ctx, tx, Letter{User: user, To: to, Subject: subject, Body: text})
}

// errCode is the one answer to every code that is not accepted.
func errCode() error {
	return fault.InvalidField("code", "is wrong, was used already, or is too old")
}

// acceptCode accepts a code of the user's app, or a recovery code, once. Faults: Invalid, Conflict (no second factor).
func (sf *SecondFactors) acceptCode(ctx context.Context, tx *db.Tx, user id.User, code string) error {
	row, err := tx.Q.LockTOTP(ctx, user)
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("lock the TOTP secret of %s: %w", user, err)
	}
	if err != nil || !row.Confirmed {
		return fault.New(fault.Conflict, "you have no authenticator app")
	}
	if plain := recoveryPlain(code); len(plain) == recoveryLen {
		n, err := tx.Q.UseRecoveryCode(ctx, user, hashSecret(plain))
		if err != nil {
			return fmt.Errorf("use a recovery code: %w", err)
		}
		if n == 0 {
			return errCode()
		}
		return nil
	}
	return sf.acceptTOTP(ctx, tx, user, row, code)
}

// acceptTOTP accepts a code of the present time whose step is after that of the last one.
func (sf *SecondFactors) acceptTOTP(ctx context.Context, tx *db.Tx, user id.User, row dbq.LockTOTPRow,
	code string) error {
	if sf.cfg.Box == nil {
		return fault.New(fault.Unavailable, "this platform cannot check codes at the moment")
	}
	secret, err := sf.cfg.Box.Open(row.Secret, totpBelongs(user))
	if err != nil {
		return fmt.Errorf("open the TOTP secret of %s: %w", user, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	step, err := matchingStep(string(secret), strings.ReplaceAll(strings.TrimSpace(code), " ", ""), now)
	if err != nil {
		return err
	}
	if step <= row.LastStep { // 0: no code matches
		return errCode()
	}
	if err := tx.Q.AcceptTOTP(ctx, step, user); err != nil {
		return fmt.Errorf("accept a code: %w", err)
	}
	return nil
}

// matchingStep returns the step near now whose code this is, the latest one if there are several; 0 for none.
func matchingStep(secret, code string, now time.Time) (step int64, err error) {
	at := now.Unix() / totpStep
	for n := at - totpSkew; n <= at+totpSkew; n++ {
		want, err := hotp.GenerateCodeCustom(secret, uint64(n), hotp.ValidateOpts{
			Digits:    otp.DigitsSix,
			Algorithm: otp.AlgorithmSHA1,
		})
		if err != nil {
			return 0, fmt.Errorf("make a code: %w", err)
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			step = n
		}
	}
	return step, nil
}

// newRecoveryCodes replaces the user's recovery codes.
func newRecoveryCodes(ctx context.Context, tx *db.Tx, user id.User) ([]string, error) {
	codes, hashes := make([]string, recoveryCodes), make([][]byte, recoveryCodes)
	for i := range codes {
		plain := strings.ToLower(rand.Text()[:recoveryLen])
		hashes[i] = hashSecret(plain)
		codes[i] = plain[:4] + "-" + plain[4:8] + "-" + plain[8:12] + "-" + plain[12:]
	}
	if err := tx.Q.DeleteRecoveryCodes(ctx, user); err != nil {
		return nil, fmt.Errorf("delete recovery codes: %w", err)
	}
	if err := tx.Q.InsertRecoveryCodes(ctx, user, hashes); err != nil {
		return nil, fmt.Errorf("insert recovery codes: %w", err)
	}
	return codes, nil
}

func recoveryPlain(code string) string {
	return strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(strings.TrimSpace(code)))
}

// countCode counts an attempt at a code before it is looked at. A stranger who knows the password guesses a code with a
// chance of 1 in 6,000 a day. A place where the account was signed in to has a count of its own, as for passwords: who
// tries from elsewhere does not lock out the owner.
func (sf *SecondFactors) countCode(ctx context.Context, user id.User, email, address string) error {
	key := "code:" + user.String()
	sum := sha256.Sum256([]byte(email))
	known, err := sf.db.Q.KnownPlace(ctx, "known:"+hex.EncodeToString(sum[:])+":"+prefix(address))
	if err != nil {
		return fmt.Errorf("look up the place: %w", err)
	}
	if known {
		key += ":" + prefix(address)
	}
	return countAttempt(ctx, sf.db.Q, key, codesPerDay, 24*time.Hour)
}

// beginSecondFactor returns nil if the user has no second factor, and else what their sign-in is finished with.
func beginSecondFactor(ctx context.Context, tx *db.Tx, user id.User) (*SecondFactorNeeded, error) {
	has, err := tx.Q.HasTOTP(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("read the second factor of %s: %w", user, err)
	}
	if !has {
		return nil, nil
	}
	secret := newSecret()
	if err := tx.Q.InsertChallenge(ctx, dbq.InsertChallengeParams{
		SecretHash: hashSecret(secret), Kind: "code", UserID: pgtype.UUID{Bytes: user.UUID(), Valid: true}, Data: []byte{},
		LifeS: challengeLife.Seconds(),
	}); err != nil {
		return nil, fmt.Errorf("insert challenge: %w", err)
	}
	return &SecondFactorNeeded{secret}, nil
}

// FinishSignIn opens the session of a sign-in whose password was right, with a code of the app or a recovery code. s
// carries where the call comes from. After five wrong codes the sign-in has to start again, and the user gets a mail:
// someone knows the password. Faults: Unauthorized (too late, or too many tries), Invalid, RateLimited.
func (sf *SecondFactors) FinishSignIn(ctx context.Context, challenge, code string, s SignIn) (secret string,
	p Principal,
	err error) {
	over := fault.New(fault.Unauthorized, "this sign-in is over: begin again with your password")
	if len(challenge) != secretLen {
		return "", Principal{}, over
	}
	u, err := sf.db.Q.ChallengeUser(ctx, hashSecret(challenge), challengeTries)
	if db.NoRows(err) {
		return "", Principal{}, over
	}
	if err != nil {
		return "", Principal{}, fmt.Errorf("find challenge: %w", err)
	}
	passed, err := sf.passwords.countSignIn(ctx, u.Email, s.Address)
	if err != nil {
		return "", Principal{}, err
	}
	if err := sf.countCode(ctx, u.UserID, u.Email, s.Address); err != nil {
		return "", Principal{}, err
	}
	secret = newSecret()
	err = sf.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.TakeChallenge(ctx, hashSecret(challenge), "code"); err != nil {
			if db.NoRows(err) {
				return over
			}
			return fmt.Errorf("take challenge: %w", err)
		}
		if err := sf.acceptCode(ctx, tx, u.UserID, code); err != nil {
			return err // the challenge stays
		}
		p, err = sf.sessions.open(ctx, tx, u.UserID, secret, s)
		return err
	})
	if fault.Is(err, fault.Invalid) {
		return "", Principal{}, errors.Join(sf.failChallenge(ctx, challenge, u), err)
	}
	if err != nil {
		return "", Principal{}, err
	}
	return secret, p, passed(ctx)
}

// failChallenge counts a wrong code, and mails the user after the last one, once a day at most.
func (sf *SecondFactors) failChallenge(ctx context.Context, challenge string, u dbq.ChallengeUserRow) error {
	n, err := sf.db.Q.FailChallenge(ctx, hashSecret(challenge))
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("count a wrong code: %w", err)
	}
	if n != challengeTries {
		return nil
	}
	err = countAttempt(ctx, sf.db.Q, "code-letter:"+u.UserID.String(), 1, 24*time.Hour)
	if fault.Is(err, fault.RateLimited) {
		return nil
	}
	if err != nil {
		return err
	}
	return sf.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return sf.warnUser(ctx, tx, u.UserID, u.Email, "A sign-in with wrong codes", "Someone entered your password, and "+
			"then wrong codes of your authenticator app. They are not signed in.\n\nIf it was not you, they know your "+
			"password: set a new one at "+sf.cfg.PublicURL+"/forgot-password.\n")
	})
}

// removeFactors removes every second factor of a user, and what was begun with one.
func removeFactors(ctx context.Context, tx *db.Tx, user id.User) error {
	if err := EraseFactors(ctx, tx, user); err != nil {
		return fmt.Errorf("remove the second factors of %s: %w", user, err)
	}
	return nil
}

// EraseFactors removes every second factor of a user who is deleted.
func EraseFactors(ctx context.Context, tx *db.Tx, user id.User) error {
	_, err := tx.Q.DeleteTOTP(ctx, user)
	return errors.Join(err, endDeviceLogins(ctx, tx, user), tx.Q.DeletePasskeysOfUser(ctx, user),
		tx.Q.DeleteEmailChangesOfUser(ctx, user),
		tx.Q.DeleteRecoveryCodes(ctx, user),
		tx.Q.DeleteChallengesOfUser(ctx, pgtype.UUID{
			Bytes: user.UUID(),
			Valid: true,
		}))
}

// Reset removes every second factor of the user with this e-mail, for a user who has lost them all. Who
// runs the platform has made sure who asks. Fault: NotFound.
func (sf *SecondFactors) Reset(ctx context.Context, email string) error {
	address, err := normalEmail(email)
	if err != nil {
		return err
	}
	user, err := sf.db.Q.UserForSignIn(ctx, address)
	if db.NoRows(err) {
		return fault.New(fault.NotFound, "no one has signed up with %s", address)
	}
	if err != nil {
		return fmt.Errorf("find user: %w", err)
	}
	return sf.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := removeFactors(ctx, tx, user.ID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Event{User: user.ID, Action: "user.factors_reset", Object: user.ID.String()})
	})
}

// RotatesSecret reports whether secrets have to be sealed again, because the platform's secret was replaced.
func (sf *SecondFactors) RotatesSecret() bool { return sf.cfg.Box != nil && sf.cfg.Box.Rotating() }

// Reseal seals again what the platform's previous secret sealed, and returns how many secrets that were.
func (sf *SecondFactors) Reseal(ctx context.Context) (n int, err error) {
	return seal.ResealAll(ctx, sf.cfg.Box, id.First[id.User](), sf.db.Q.TOTPSecrets,
		func(r dbq.TOTPSecretsRow) (id.User, []byte, string) { return r.UserID, r.Secret, totpBelongs(r.UserID) },
		sf.db.Q.ResealTOTP)
}
