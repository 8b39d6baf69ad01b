package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// A passkey proves a device and the person at it, so that it replaces the password and the code. See ADR 34.

// Passkeys adds passkeys and signs in with them.
type Passkeys struct {
	*core
	passwords *Passwords
	sessions  *Sessions
}

// MaxPasskeys is how many passkeys a user may have.
const MaxPasskeys = 20

// Passkey is a passkey of a user.
type Passkey struct {
	ID         id.Passkey
	Name       string
	CreatedAt  time.Time
	LastUsedAt *time.Time
}

// Ceremony is what a browser needs to make or use a passkey.
type Ceremony struct {
	Options   json.RawMessage // of the browser's call
	Challenge string          // secret: to finish it, within 10 minutes, once
}

// keyOwner is a user as the WebAuthn library sees them. The handle that authenticators store is the user's id.
type keyOwner struct {
	user  id.User
	email string
	keys  []webauthn.Credential
}

func (o keyOwner) WebAuthnID() []byte                         { u := o.user.UUID(); return u[:] }
func (o keyOwner) WebAuthnName() string                       { return o.email }
func (o keyOwner) WebAuthnDisplayName() string                { return o.email }
func (o keyOwner) WebAuthnCredentials() []webauthn.Credential { return o.keys }

// relyingParty returns the library for the platform's address. Fault: Unavailable (an address that has no name).
func (pk *Passkeys) relyingParty() (*webauthn.WebAuthn, error) {
	u, err := url.Parse(pk.cfg.PublicURL)
	if err != nil || u.Hostname() == "" || net.ParseIP(u.Hostname()) != nil {
		return nil, fault.New(fault.Unavailable, "passkeys need a platform with a name, not an address")
	}
	w, err := webauthn.New(&webauthn.Config{
		RPID:          u.Hostname(),
		RPDisplayName: "Muster",
		RPOrigins:     []string{u.Scheme + "://" + u.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:      protocol.ResidentKeyRequirementRequired,
			UserVerification: protocol.VerificationRequired,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set up passkeys: %w", err)
	}
	return w, nil
}

func errPasskey() error {
	return fault.New(fault.Unauthorized, "this passkey was not accepted: try again, or sign in with your password")
}

// owner reads a user with their passkeys, whose rows are locked until tx ends.
func owner(ctx context.Context, tx *db.Tx, user id.User) (keyOwner, error) {
	o := keyOwner{user: user}
	var err error
	if o.email, err = tx.Q.UserEmail(ctx, user); err != nil {
		return o, err
	}
	rows, err := tx.Q.LockPasskeys(ctx, user)
	if err != nil {
		return o, fmt.Errorf("lock passkeys of %s: %w", user, err)
	}
	for _, r := range rows {
		var c webauthn.Credential
		if err := json.Unmarshal(r.Credential, &c); err != nil {
			return o, fmt.Errorf("read passkey %s: %w", r.ID, err)
		}
		o.keys = append(o.keys, c)
	}
	return o, nil
}

// begun stores a ceremony that a browser has to finish.
func begun(ctx context.Context, tx *db.Tx, kind string, user id.User, options any,
	data *webauthn.SessionData) (c Ceremony, err error) {
	c.Challenge = newSecret()
	raw, err := json.Marshal(data)
	if err == nil {
		c.Options, err = json.Marshal(options)
	}
	if err == nil {
		err = tx.Q.InsertChallenge(ctx, dbq.InsertChallengeParams{
			SecretHash: hashSecret(c.Challenge), Kind: kind,
			UserID: pgtype.UUID{Bytes: user.UUID(), Valid: !user.IsZero()},
			Data:   raw, LifeS: challengeLife.Seconds(),
		})
	}
	if err != nil {
		return c, fmt.Errorf("begin a ceremony: %w", err)
	}
	return c, nil
}

// takeCeremony returns what a browser has to finish, once. Fault: Unauthorized.
func takeCeremony(ctx context.Context, tx *db.Tx, kind, challenge string) (user pgtype.UUID, d webauthn.SessionData,
	err error) {
	r, err := tx.Q.TakeChallenge(ctx, hashSecret(challenge), kind)
	if db.NoRows(err) {
		return user, d, errPasskey()
	}
	if err == nil {
		err = json.Unmarshal(r.Data, &d)
	}
	if err != nil {
		return user, d, fmt.Errorf("take a ceremony: %w", err)
	}
	return pgtype.UUID{Bytes: r.UserID.UUID(), Valid: !r.UserID.IsZero()}, d, nil
}

// Begin begins to add a passkey. It needs the password. Faults: Invalid, RateLimited, QuotaExceeded,
// Unavailable.
func (pk *Passkeys) Begin(ctx context.Context, p Principal, password string) (c Ceremony, err error) {
	w, err := pk.relyingParty()
	if err != nil {
		return c, err
	}
	if err := pk.passwords.Check(ctx, p, password); err != nil {
		return c, err
	}
	err = pk.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		o, err := owner(ctx, tx, p.User)
		if err != nil {
			return err
		}
		if len(o.keys) >= MaxPasskeys {
			return fault.New(fault.QuotaExceeded, "you have %d passkeys, the most there may be: remove one first", MaxPasskeys)
		}
		options, data, err := w.BeginRegistration(o,
			webauthn.WithExclusions(webauthn.Credentials(o.keys).CredentialDescriptors()))
		if err != nil {
			return fmt.Errorf("begin a passkey: %w", err)
		}
		c, err = begun(ctx, tx, "passkey_add", p.User, options, data)
		return err
	})
	return c, err
}

// Add adds the passkey that a browser made, by its response. Faults: Invalid, Unauthorized, Conflict.
func (pk *Passkeys) Add(ctx context.Context, p Principal, challenge, name string, response []byte) error {
	w, err := pk.relyingParty()
	if err != nil {
		return err
	}
	name = strings.TrimSpace(name)
	var bad fault.Fields
	if name == "" {
		bad.Add("name", "is missing: name the device")
	}
	checkName(&bad, "name", name)
	if err := bad.Err(); err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return errPasskey()
	}
	return pk.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		user, data, err := takeCeremony(ctx, tx, "passkey_add", challenge)
		if err != nil {
			return err
		}
		if !user.Valid || user.Bytes != p.User.UUID() {
			return errPasskey()
		}
		o, err := owner(ctx, tx, p.User)
		if err != nil {
			return err
		}
		key, err := w.CreateCredential(o, data, parsed)
		if err != nil {
			return errPasskey()
		}
		raw, err := json.Marshal(key)
		if err != nil {
			return fmt.Errorf("write a passkey: %w", err)
		}
		k := id.New[id.Passkey]()
		err = tx.Q.InsertPasskey(ctx, dbq.InsertPasskeyParams{ID: k, UserID: p.User, CredentialID: key.ID, Credential: raw,
			Name: name})
		if db.IsUnique(err, "") {
			return fault.New(fault.Conflict, "this passkey is stored already")
		}
		if err != nil {
			return fmt.Errorf("insert passkey: %w", err)
		}
		if err := audit.Record(ctx, tx, p.Event("passkey.add", k.String(), map[string]any{"name": name})); err != nil {
			return err
		}
		return pk.warnUser(ctx, tx, p.User, p.Email, "A passkey was added", fmt.Sprintf("The passkey %q signs in to your "+
			"account from now on.\n\nIf it was not you, remove it at %s/account/passkeys, and set a new password.\n", name,
			pk.cfg.PublicURL))
	})
}

// BeginSignIn begins a sign-in with any passkey of this platform. from is the address of the caller. Faults:
// RateLimited, Unavailable.
func (pk *Passkeys) BeginSignIn(ctx context.Context, from string) (c Ceremony, err error) {
	w, err := pk.relyingParty()
	if err != nil {
		return c, err
	}
	if err := countAttempt(ctx, pk.db.Q, "passkey:"+prefix(from), pk.cfg.AddressTries, signInWindow); err != nil {
		return c, err
	}
	options, data, err := w.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return c, fmt.Errorf("begin a sign-in: %w", err)
	}
	err = pk.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c, err = begun(ctx, tx, "passkey_sign_in", id.User{}, options, data)
		return err
	})
	return c, err
}

// SignIn opens a session with the response of a browser. s carries where the call comes from. A passkey whose
// counter shows that it was copied is refused. Fault: Unauthorized.
func (pk *Passkeys) SignIn(ctx context.Context, challenge string, response []byte, s SignIn) (secret string,
	p Principal, err error) {
	w, err := pk.relyingParty()
	if err != nil {
		return "", Principal{}, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return "", Principal{}, errPasskey()
	}
	secret = newSecret()
	err = pk.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, data, err := takeCeremony(ctx, tx, "passkey_sign_in", challenge)
		if err != nil {
			return err
		}
		var o keyOwner
		key, err := w.ValidateDiscoverableLogin(func(_, handle []byte) (webauthn.User, error) {
			u, err := uuid.FromBytes(handle)
			if err != nil {
				return nil, err
			}
			o, err = owner(ctx, tx, id.FromUUID[id.User](u))
			return o, err
		}, data, parsed)
		if err != nil || key.Authenticator.CloneWarning {
			return errPasskey()
		}
		raw, err := json.Marshal(key)
		if err != nil {
			return fmt.Errorf("write a passkey: %w", err)
		}
		n, err := tx.Q.UsePasskey(ctx, raw, key.ID, o.user)
		if err != nil || n == 0 {
			return errors.Join(err, errPasskey())
		}
		p, err = pk.sessions.open(ctx, tx, o.user, secret, s)
		return err
	})
	if err != nil {
		return "", Principal{}, err
	}
	return secret, p, nil
}

// List lists the passkeys of the principal's user, the first one first.
func (pk *Passkeys) List(ctx context.Context, p Principal) ([]Passkey, error) {
	rows, err := pk.db.Q.ListPasskeys(ctx, p.User)
	if err != nil {
		return nil, fmt.Errorf("list passkeys: %w", err)
	}
	out := make([]Passkey, len(rows))
	for i, r := range rows {
		out[i] = Passkey{r.ID, r.Name, r.CreatedAt, r.LastUsedAt}
	}
	return out, nil
}

// Rename gives a passkey of the principal's user another name. Faults: Invalid, NotFound.
func (pk *Passkeys) Rename(ctx context.Context, p Principal, k id.Passkey, name string) error {
	name = strings.TrimSpace(name)
	var bad fault.Fields
	if name == "" {
		bad.Add("name", "is missing: name the device")
	}
	checkName(&bad, "name", name)
	if err := bad.Err(); err != nil {
		return err
	}
	n, err := pk.db.Q.RenamePasskey(ctx, name, k, p.User)
	if err != nil {
		return fmt.Errorf("rename passkey: %w", err)
	}
	if n == 0 {
		return fault.New(fault.NotFound, "passkey not found")
	}
	return nil
}

// Remove removes a passkey of the principal's user. Fault: NotFound.
func (pk *Passkeys) Remove(ctx context.Context, p Principal, k id.Passkey) error {
	return pk.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.DeletePasskey(ctx, k, p.User)
		if err != nil {
			return fmt.Errorf("delete passkey: %w", err)
		}
		if n == 0 {
			return fault.New(fault.NotFound, "passkey not found")
		}
		if err := audit.Record(ctx, tx, p.Event("passkey.remove", k.String(), nil)); err != nil {
			return err
		}
		return pk.warnUser(ctx, tx, p.User, p.Email, "A passkey was removed", "A passkey no longer signs in to your account."+
			"\n\nIf it was not you, set a new password at "+pk.cfg.PublicURL+"/forgot-password.\n")
	})
}
