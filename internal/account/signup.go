package account

import (
	"context"
	"fmt"
	"net/mail"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// SignUps creates users.
type SignUps struct {
	*core
	verifications *Verifications
}

// SignUp is what a new user enters.
type SignUp struct {
	Email    string
	Password string
	Name     string // of the person and of the personal org; "" = the e-mail's local part
	Address  string // where the call comes from
}

// preparedSignUp is a sign-up that has passed every check but that of the e-mail being free.
type preparedSignUp struct {
	email, name, hash, address string
}

// SignedUp is a new user with their personal org.
type SignedUp struct {
	Principal
	CreatedAt time.Time
	Token     string // the secret of an API token with all scopes
}

// SignUp creates the user, their personal org and a first API token, and mails the link that proves the address.
// Faults: Forbidden (sign-up is switched off), Invalid, RateLimited, Unavailable, Conflict (the address has an account;
// its owner gets a mail, and the caller's address may have only Config.TakenPerHour of these answers an hour).
func (su *SignUps) SignUp(ctx context.Context, s SignUp, once idem.Request) (SignedUp, idem.Outcome, error) {
	prepared, err := su.prepare(ctx, s)
	if err != nil {
		return SignedUp{}, idem.Outcome{}, err
	}
	u, out, err := idem.Once(ctx, su.db, once, func(ctx context.Context, tx *db.Tx) (u SignedUp, err error) {
		if u.Principal, err = su.signUp(ctx, tx, prepared); err != nil {
			return u, err
		}
		if _, u.Token, err = createToken(ctx, tx, u.Principal, NewToken{Name: "sign-up", Scopes: Scopes()}); err != nil {
			return u, err
		}
		u.CreatedAt, err = tx.Now(ctx)
		return u, err
	})
	return u, out, su.after(ctx, prepared, err)
}

// prepare checks the rules and hashes the password, which takes tens of milliseconds of CPU and therefore
// happens before the transaction.
func (su *SignUps) prepare(ctx context.Context, s SignUp) (preparedSignUp, error) {
	if su.cfg.SignUpOff {
		return preparedSignUp{}, fault.New(fault.Forbidden,
			"this platform takes no sign-ups: ask its operator for an account")
	}
	var bad fault.Fields
	email, err := normalEmail(s.Email)
	if err != nil {
		bad = append(bad, fault.From(err).Fields...)
	}
	checkPassword(&bad, "password", s.Password, email)
	name := strings.TrimSpace(s.Name)
	checkName(&bad, "name", name)
	if err := bad.Err(); err != nil {
		return preparedSignUp{}, err
	}
	if name == "" {
		name, _, _ = strings.Cut(email, "@")
	}
	if err := su.count(ctx, s.Address); err != nil {
		return preparedSignUp{}, err
	}
	if err := su.mayMeetTaken(ctx, s.Address); err != nil {
		return preparedSignUp{}, err
	}
	hash, err := su.hasher.hash(ctx, s.Password)
	if err != nil {
		return preparedSignUp{}, err
	}
	return preparedSignUp{email: email, name: name, hash: hash, address: s.Address}, nil
}

// signUp makes the user, their personal org and the membership, and mails the link that proves the address. A taken
// e-mail is a Conflict.
func (su *SignUps) signUp(ctx context.Context, tx *db.Tx, s preparedSignUp) (Principal, error) {
	p := Principal{
		User: id.New[id.User](), Org: id.New[id.Org](), Role: RoleOwner, Scopes: RoleOwner.Scopes(),
		Email: s.email, OrgName: s.name, Address: s.address,
	}
	err := tx.Q.InsertUser(ctx, dbq.InsertUserParams{ID: p.User, Email: s.email, Name: s.name, PasswordHash: s.hash})
	if db.IsUnique(err, "app_user_email") {
		f := fault.New(fault.Conflict, "there is an account with this e-mail address: sign in instead")
		f.Fields = []fault.Field{{Location: "email", Message: "has an account"}}
		return Principal{}, f
	}
	if err != nil {
		return Principal{}, fmt.Errorf("insert user: %w", err)
	}
	if err := tx.Q.InsertOrg(ctx, p.Org, s.name, true); err != nil {
		return Principal{}, fmt.Errorf("insert org: %w", err)
	}
	if err := tx.Q.InsertMembership(ctx, p.Org, p.User, string(RoleOwner)); err != nil {
		return Principal{}, fmt.Errorf("insert membership: %w", err)
	}
	if err := su.verifications.send(ctx, tx, p); err != nil {
		return Principal{}, err
	}
	return p, audit.Record(ctx, tx, p.Event("user.sign_up", p.User.String(), nil))
}

// Register is SignUp without a token.
func (su *SignUps) Register(ctx context.Context, s SignUp) (p Principal, err error) {
	prepared, err := su.prepare(ctx, s)
	if err != nil {
		return Principal{}, err
	}
	err = su.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		p, err = su.signUp(ctx, tx, prepared)
		return err
	})
	return p, su.after(ctx, prepared, err)
}

// normalEmail is the form under which an address is kept and looked up: trimmed, lower case. Its fault is Invalid with
// the location "email".
func normalEmail(s string) (string, error) {
	e := strings.ToLower(strings.TrimSpace(s))
	a, err := mail.ParseAddress(e)
	switch {
	case e == "":
		return "", fault.InvalidField("email", "is missing")
	case len(e) > 254 || !utf8.ValidString(e):
		return "", fault.InvalidField("email", "is too long or not text")
	case err != nil || a.Name != "" || a.Address != e || strings.ContainsFunc(e, odd):
		return "", fault.InvalidField("email", "is not an e-mail address such as ada@example.com")
	}
	return e, nil
}

func odd(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '"' || r == '\\' }

// checkName holds a name for people to see: short, one line.
func checkName(f *fault.Fields, location, name string) {
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		f.Add(location, "has to be one line of text")
	case utf8.RuneCountInString(name) > 80:
		f.Add(location, "has to have at most 80 characters")
	}
}
