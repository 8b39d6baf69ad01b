// Package account knows who is calling: users, their orgs, sessions, API tokens and SSH keys.
//
// What always holds:
//
//   - A password is kept as an argon2id hash; a session's or token's secret as a SHA-256 of 256 random bits. No secret
//     can be read back, and each is shown once.
//   - Whether an e-mail has an account cannot be learned from a failed sign-in: not by its answer, not by its time, not
//     by its limit.
//   - Sign-in attempts are counted in PostgreSQL, per account and per address, before the password is looked at; so
//     the limits hold over all replicas and under any concurrency.
//   - A principal belongs to one org, and everything it may see or do is that org's. A user may be a member of several;
//     a session is in one of them at a time, a token always in the same one.
//   - What a principal may do is within the role that its user has in the org now (permission.go). Rights that are
//     taken away end with the transaction that takes them: tokens, SSH keys, sessions, invitations; open streams within
//     Config.RecheckEvery.
//   - Who has a second factor gets no session with the password alone, and a code works once (secondfactor.go).
//   - Every org has an owner, and every user an org.
package account

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

// Scopes of an API token. A token without ScopeRead may still read what its other scopes let it change.
const (
	ScopeRead     = "read"     // see everything of the org
	ScopeClusters = "clusters" // rent, change and release clusters; SSH keys
	ScopeHosts    = "hosts"    // enrol and run hosts
	ScopeBilling  = "billing"  // pay in
	ScopeMembers  = "members"  // invite people, change their roles and remove them
	ScopeAdmin    = "admin"    // the platform's own admin pages; only an admin can give it
)

// Scopes are those anybody can give a token: together they are all that a user may do in an org.
func Scopes() []string {
	return []string{ScopeRead, ScopeClusters, ScopeHosts, ScopeBilling, ScopeMembers}
}

// Principal is who is calling, and for which org.
type Principal struct {
	User    id.User
	Org     id.Org
	Token   id.Token   // set when a token was presented
	Session id.Session // set when a session was
	Role    Role       // of the user in the org
	Scopes  []string   // within the role's
	Admin   bool       // a platform operator, not merely an owner
	Email   string
	OrgName string
	Address string // where the call comes from; set by the face, for the audit trail
}

// LogAttrs are the ids by which a log names the principal; none: there is none.
func (p Principal) LogAttrs() []slog.Attr {
	var out []slog.Attr
	for _, a := range []struct {
		name string
		id   interface{ IsZero() bool }
	}{{"org", p.Org}, {"user", p.User}, {"token", p.Token}} {
		if !a.id.IsZero() {
			out = append(out, slog.Any(a.name, a.id))
		}
	}
	return out
}

// Can reports whether the principal holds the scope.
func (p Principal) Can(scope string) bool { return slices.Contains(p.Scopes, scope) }

// CanAny reports whether the principal holds at least one of the scopes.
func (p Principal) CanAny(scopes ...string) bool { return slices.ContainsFunc(scopes, p.Can) }

// RequireStaff returns a Forbidden fault unless who is an admin of the platform. Every use case that is for admins
// alone calls it first, in addition to the rule of its route.
func RequireStaff(who Principal) error {
	if !who.Admin {
		return fault.New(fault.Forbidden, "only an admin of this platform may do this")
	}
	return nil
}

// Key names the principal for idempotency keys and rate limits: two tokens of one user are two principals.
func (p Principal) Key() string {
	if !p.Token.IsZero() {
		return "tok:" + p.Token.UUID().String()
	}
	return "user:" + p.User.UUID().String()
}

// Event is an act of this principal, for audit.Record.
func (p Principal) Event(action, object string, detail map[string]any) audit.Event {
	return audit.Event{
		Org:     p.Org,
		User:    p.User,
		Token:   p.Token,
		Action:  action,
		Object:  object,
		Detail:  detail,
		Address: p.Address,
	}
}

// Config are the rules of the house. The zero value is good for production.
type Config struct {
	SignUpOff      bool
	SessionIdle    time.Duration // a session unused for so long ends; 0 = 14 days
	SessionMax     time.Duration // a session ends after so long; 0 = 90 days
	RotateAfter    time.Duration // a session's secret is due for a new one; 0 = 12 h
	HashSlots      int           // passwords hashed at a time; 0 = one per CPU
	HashMemoryKiB  int           // memory one hash takes while it is made, at least 8; 0 = 19 MiB; tests take less
	AccountTries   int           // sign-ins per account and 15 min; 0 = 10
	AddressTries   int           // sign-ins per address and 15 min; 0 = 60
	SignUpsPerHour int           // per address; 0 = 20
	TakenPerHour   int           // sign-ups with taken e-mail addresses, per address; 0 = 5
	DeviceInterval time.Duration // between two polls of a device login; 0 = 5 s
	RecheckEvery   time.Duration // how often the credential of an open stream is checked again; 0 = 15 s
	// Post writes a mail in a transaction; nil: no mail goes out, and no address can be verified.
	Post      func(ctx context.Context, tx *db.Tx, l Letter) error
	PublicURL string // where people reach the platform, for links
	// TakenOver is called for each organisation of a user whose address was verified by Passwords.Reset for the first
	// time, in its transaction: another person may have signed up with the address. It is not called for organisations
	// with another owner. nil: nothing else is to be done.
	TakenOver func(ctx context.Context, tx *db.Tx, org id.Org) error
	// Box seals the secrets of authenticator apps. nil: no second factor can be set up.
	Box *seal.Box
	// RightsLost is called when a member of an organisation was removed or has a role with fewer scopes, in the
	// transaction of it: what the user set up that gives access must end. nil: nothing else is to be done.
	RightsLost func(ctx context.Context, tx *db.Tx, org id.Org, user id.User) error
}

func (c Config) withDefaults() Config {
	set := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	setInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.SessionIdle, 14*24*time.Hour)
	set(&c.SessionMax, 90*24*time.Hour)
	set(&c.RotateAfter, 12*time.Hour)
	set(&c.RecheckEvery, 15*time.Second)
	set(&c.DeviceInterval, 5*time.Second)
	setInt(&c.HashSlots, runtime.GOMAXPROCS(0))
	setInt(&c.HashMemoryKiB, hashMemoryKiB)
	setInt(&c.AccountTries, 10)
	setInt(&c.AddressTries, 60)
	setInt(&c.SignUpsPerHour, 20)
	setInt(&c.TakenPerHour, 5)
	return c
}

// Accounts holds the use cases, by what they are about; those that are about a user or an org itself are methods of it.
// All are safe for concurrent use.
type Accounts struct {
	Members       *Members
	Invitations   *Invitations
	Passwords     *Passwords
	Sessions      *Sessions
	SecondFactors *SecondFactors
	Passkeys      *Passkeys
	Verifications *Verifications
	EmailChanges  *EmailChanges
	SignUps       *SignUps
	Tokens        *Tokens
	SSHKeys       *SSHKeys
	DeviceLogins  *DeviceLogins
	Legals        *Legals
	Credentials   *Credentials

	*core
}

// core is what each of them works with.
type core struct {
	db     *db.DB
	cfg    Config
	hasher *hasher
}

// New makes the use cases; it starts nothing.
func New(d *db.DB, cfg Config) *Accounts {
	cfg = cfg.withDefaults()
	c := &core{db: d, cfg: cfg, hasher: newHasher(cfg.HashSlots, cfg.HashMemoryKiB)}
	members := &Members{c}
	passwords := &Passwords{core: c, members: members}
	sessions := &Sessions{core: c, passwords: passwords}
	verifications := &Verifications{core: c, passwords: passwords}
	return &Accounts{
		Members:       members,
		Invitations:   &Invitations{core: c, members: members},
		Passwords:     passwords,
		Sessions:      sessions,
		SecondFactors: &SecondFactors{core: c, passwords: passwords, sessions: sessions},
		Passkeys:      &Passkeys{core: c, passwords: passwords, sessions: sessions},
		Verifications: verifications,
		EmailChanges:  &EmailChanges{core: c, passwords: passwords},
		SignUps:       &SignUps{core: c, verifications: verifications},
		Tokens:        &Tokens{c},
		SSHKeys:       &SSHKeys{c},
		DeviceLogins:  &DeviceLogins{c},
		Legals:        &Legals{c},
		Credentials:   &Credentials{core: c},
		core:          c,
	}
}

// Page is a cut of a list that is ordered newest first.
type Page[C any] struct {
	After C   // the last item of the page before; zero: from the newest
	Limit int // > 0
}

// Swept says what Sweep removed.
type Swept struct{ Sessions, Attempts, Links, Resets, Invitations, Challenges, DeviceLogins, EmailChanges int64 }

// Sweep removes sessions that are over, attempts that no longer count, and old links.
func (a *Accounts) Sweep(ctx context.Context) (s Swept, err error) {
	if s.Sessions, err = a.db.Q.DeleteDeadSessions(ctx, a.cfg.SessionIdle.Seconds()); err != nil {
		return s, err
	}
	if s.Attempts, err = a.db.Q.DeleteOldAttempts(ctx); err != nil {
		return s, err
	}
	if s.Links, err = a.db.Q.DeleteOldVerifications(ctx); err != nil {
		return s, err
	}
	if s.Resets, err = a.db.Q.DeleteOldPasswordResets(ctx); err != nil {
		return s, err
	}
	if s.Invitations, err = a.db.Q.DeleteOldInvitations(ctx); err != nil {
		return s, err
	}
	if s.Challenges, err = a.db.Q.DeleteOldChallenges(ctx); err != nil {
		return s, err
	}
	if s.DeviceLogins, err = a.db.Q.DeleteOldDeviceLogins(ctx); err != nil {
		return s, err
	}
	s.EmailChanges, err = a.db.Q.DeleteOldEmailChanges(ctx)
	return s, err
}

// SetAdmin makes the user with this e-mail a platform operator, or no longer one. A user who no longer is one loses
// their tokens with ScopeAdmin, whichever org they are for, and all tokens made with those.
func (a *Accounts) SetAdmin(ctx context.Context, email string, admin bool) error {
	address, err := normalEmail(email)
	if err != nil {
		return err
	}
	return a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		user, err := tx.Q.SetUserAdmin(ctx, admin, address)
		switch {
		case db.NoRows(err):
			return fault.New(fault.NotFound, "no one has signed up with %s", address)
		case err != nil:
			return fmt.Errorf("set admin: %w", err)
		}
		detail := map[string]any{"email": address, "admin": admin}
		if !admin {
			tokens, err := tx.Q.TokensOfUserWithScope(ctx, user, ScopeAdmin)
			if err != nil {
				return fmt.Errorf("find admin tokens: %w", err)
			}
			revoked, err := revokeTokens(ctx, tx, tokens...)
			if err != nil {
				return err
			}
			detail["tokens_revoked"] = revoked
		}
		return audit.Record(ctx, tx, audit.Event{Action: "user.admin", Object: user.String(), Detail: detail})
	})
}
