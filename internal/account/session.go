package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Sessions signs users in and out.
type Sessions struct {
	*core
	passwords *Passwords
}

// SignIn is an attempt to open a session.
type SignIn struct {
	Email     string
	Password  string
	Address   string // where the call comes from, host or host:port
	UserAgent string
}

// errSignIn is the one answer to every failed sign-in.
func errSignIn() error {
	return fault.New(fault.Unauthorized, "the e-mail address or the password is wrong")
}

// SignIn checks the password and opens a session. The secret goes into the caller's cookie and is known to no one
// else. If the user has a second factor, there is no session yet and the error is a *SecondFactorNeeded. Faults:
// Unauthorized, RateLimited with RetryAfter, Unavailable.
func (ss *Sessions) SignIn(ctx context.Context, s SignIn) (secret string, p Principal, err error) {
	email, err := normalEmail(s.Email)
	if err != nil || len(s.Password) > 4*MaxPassword {
		return "", Principal{}, errSignIn()
	}
	passed, err := ss.passwords.countSignIn(ctx, email, s.Address)
	if err != nil {
		return "", Principal{}, err
	}
	user, err := ss.db.Q.UserForSignIn(ctx, email)
	if db.NoRows(err) {
		user.PasswordHash = ss.hasher.decoy
	} else if err != nil {
		return "", Principal{}, fmt.Errorf("find user: %w", err)
	}
	ok, weak, err := ss.hasher.check(ctx, user.PasswordHash, s.Password)
	if err != nil {
		return "", Principal{}, fmt.Errorf("check password: %w", err)
	}
	if !ok {
		return "", Principal{}, errSignIn()
	}
	var stronger string
	if weak {
		if stronger, err = ss.hasher.hash(ctx, s.Password); err != nil {
			return "", Principal{}, err
		}
	}
	secret = newSecret()
	var second *SecondFactorNeeded
	err = ss.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if stronger != "" {
			if err := tx.Q.SetPasswordHash(ctx, stronger, user.ID); err != nil {
				return err
			}
		}
		if second, err = beginSecondFactor(ctx, tx, user.ID); err != nil || second != nil {
			return err
		}
		p, err = ss.open(ctx, tx, user.ID, secret, s)
		return err
	})
	if err != nil {
		return "", Principal{}, err
	}
	if second != nil { // the attempt still counts, and the place is not known to be the user's
		return "", Principal{}, second
	}
	return secret, p, passed(ctx)
}

func (ss *Sessions) open(ctx context.Context, tx *db.Tx, user id.User, secret string,
	s SignIn) (Principal, error) {
	org, err := tx.Q.HomeOrg(ctx, user)
	if err != nil {
		return Principal{}, fmt.Errorf("find the org of %s: %w", user, err)
	}
	sid := id.New[id.Session]()
	err = tx.Q.InsertSession(ctx, dbq.InsertSessionParams{
		ID: sid, UserID: user, OrgID: org, SecretHash: hashSecret(secret),
		Address: text.Clip(s.Address, 100), UserAgent: text.Clip(s.UserAgent, 300), MaxAge: ss.cfg.SessionMax.Seconds(),
	})
	if err != nil {
		return Principal{}, fmt.Errorf("insert session: %w", err)
	}
	u, err := tx.Q.UserProfile(ctx, user, org)
	if err != nil {
		return Principal{}, fmt.Errorf("read user: %w", err)
	}
	p := Principal{
		User: user, Org: org, Session: sid, Role: Role(u.Role), Scopes: sessionScopes(Role(u.Role), u.Admin), Admin: u.Admin,
		Email: u.Email, OrgName: u.OrgName, Address: s.Address,
	}
	return p, audit.Record(ctx, tx, p.Event("session.open", sid.String(), nil))
}

func sessionScopes(role Role, admin bool) []string {
	if admin {
		return append(role.Scopes(), ScopeAdmin)
	}
	return role.Scopes()
}

// Principal is who a session's secret stands for, or Unauthorized. It notes that the session is in use.
func (ss *Sessions) Principal(ctx context.Context, secret string) (Principal, error) {
	p, _, err := ss.session(ctx, secret)
	return p, err
}

func (ss *Sessions) session(ctx context.Context, secret string) (p Principal, rotationDue bool, err error) {
	gone := fault.New(fault.Unauthorized, "you are signed out: sign in again")
	if len(secret) != secretLen {
		return Principal{}, false, gone
	}
	r, err := ss.db.Q.SessionBySecret(ctx, ss.cfg.RotateAfter.Seconds(), hashSecret(secret), ss.cfg.SessionIdle.Seconds())
	if db.NoRows(err) {
		return Principal{}, false, gone
	}
	if err != nil {
		return Principal{}, false, fmt.Errorf("find session: %w", err)
	}
	if r.Stale {
		if err := ss.db.Q.TouchSession(ctx, r.ID); err != nil {
			return Principal{}, false, fmt.Errorf("touch session: %w", err)
		}
	}
	return Principal{
		User: r.UserID, Org: r.OrgID, Session: r.ID, Role: Role(r.Role),
		Scopes: sessionScopes(Role(r.Role), r.Admin), Admin: r.Admin,
		Email: r.Email, OrgName: r.OrgName,
	}, r.RotationDue, nil
}

// Rotate gives a session a new secret when its present one is old, else returns "". The old secret keeps
// working for a minute, so that requests on their way are not signed out.
func (ss *Sessions) Rotate(ctx context.Context, secret string) (fresh string, err error) {
	_, due, err := ss.session(ctx, secret)
	if err != nil || !due {
		return "", err
	}
	fresh = newSecret()
	n, err := ss.db.Q.RotateSession(ctx, hashSecret(fresh), hashSecret(secret))
	if err != nil {
		return "", fmt.Errorf("rotate session: %w", err)
	}
	if n == 0 { // another request of the same browser was first
		return "", nil
	}
	return fresh, nil
}

// SignOut ends the principal's session. Without one it does nothing.
func (ss *Sessions) SignOut(ctx context.Context, p Principal) error {
	if p.Session.IsZero() {
		return nil
	}
	return ss.End(ctx, p, p.Session)
}

// End ends one of the user's own sessions; one that is over already is NotFound unless it is the caller's.
func (ss *Sessions) End(ctx context.Context, p Principal, s id.Session) error {
	return ss.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.DeleteSession(ctx, s, p.User)
		switch {
		case err != nil:
			return fmt.Errorf("delete session: %w", err)
		case n == 0 && s == p.Session:
			return nil
		case n == 0:
			return fault.New(fault.NotFound, "session not found")
		}
		return audit.Record(ctx, tx, p.Event("session.close", s.String(), nil))
	})
}

// SignOutEverywhere ends all the user's sessions, this one too, and says how many.
func (ss *Sessions) SignOutEverywhere(ctx context.Context, p Principal) (n int64, err error) {
	err = ss.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if n, err = tx.Q.DeleteSessionsOfUser(ctx, p.User, pgtype.UUID{}); err != nil {
			return fmt.Errorf("delete sessions: %w", err)
		}
		return audit.Record(ctx, tx, p.Event("session.close_all", p.User.String(), map[string]any{"sessions": n}))
	})
	return n, err
}

// Session is one place where a user is signed in.
type Session struct {
	ID         id.Session
	Current    bool // the caller's own
	Address    string
	UserAgent  string
	CreatedAt  time.Time
	LastSeenAt time.Time
	ExpiresAt  time.Time
}

// List are the user's, last used first.
func (ss *Sessions) List(ctx context.Context, p Principal) ([]Session, error) {
	rows, err := ss.db.Q.ListSessions(ctx, p.User)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	out := make([]Session, len(rows))
	for i, r := range rows {
		out[i] = Session{r.ID, r.ID == p.Session, r.Address, r.UserAgent, r.CreatedAt, r.LastSeenAt, r.ExpiresAt}
	}
	return out, nil
}

// Profile is what a user sees of themselves.
type Profile struct {
	User        id.User
	Email, Name string
	Admin       bool
	Verified    bool // the e-mail address
	CreatedAt   time.Time
	Org         id.Org
	OrgName     string
	Personal    bool
	Role        Role   // in the org
	Zone        string // IANA name, for days and windows shown to people
}

// Profile reads the principal's user and org.
func (a *Accounts) Profile(ctx context.Context, p Principal) (Profile, error) {
	r, err := a.db.Q.UserProfile(ctx, p.User, p.Org)
	if err != nil {
		return Profile{}, fmt.Errorf("read profile of %s: %w", p.User, err)
	}
	return Profile{
		User: r.ID, Email: r.Email, Name: r.Name, Admin: r.Admin, Verified: r.EmailVerified, CreatedAt: r.CreatedAt,
		Org: r.OrgID, OrgName: r.OrgName, Personal: r.Personal, Role: Role(r.Role), Zone: r.Zone,
	}, nil
}

const secretLen = 43 // 32 bytes in unpadded base64

func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

func hashSecret(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:]
}
