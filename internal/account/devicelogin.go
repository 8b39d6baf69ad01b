package account

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/text"
)

// A program on a machine without a browser logs in as RFC 8628 describes: it shows a code, which a person enters in a
// browser where they are signed in, and polls until they have answered.

const (
	deviceLife     = 10 * time.Minute
	devicesPerHour = 30 // begun from an address
	deviceTries    = 20 // codes that a user enters in 15 minutes
	maxMachine     = 60
	// codeLetters has no vowels, so that no code is a word, and nothing that looks like something else.
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	codeLen     = 8
)

// DeviceLogins lets programs on machines without a browser log in.
type DeviceLogins struct{ *core }

// DeviceLogin is a login that was begun.
type DeviceLogin struct {
	DeviceCode string // secret: the program polls with it
	UserCode   string // that the person enters: XXXX-XXXX
	ExpiresAt  time.Time
	Interval   time.Duration // to wait between polls
}

// Begin begins a login of a program, which calls its machine by a name. Faults: Invalid, RateLimited.
func (dl *DeviceLogins) Begin(ctx context.Context, machine, address string, once idem.Request) (DeviceLogin,
	idem.Outcome, error) {
	machine = strings.TrimSpace(machine)
	if machine == "" || strings.ContainsFunc(machine, func(r rune) bool { return !text.Printable(r) }) {
		return DeviceLogin{}, idem.Outcome{}, fault.InvalidField("machine", "has to be a name in one line")
	}
	if err := countAttempt(ctx, dl.db.Q, "device:"+prefix(address), devicesPerHour, time.Hour); err != nil {
		return DeviceLogin{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, dl.db, once, func(ctx context.Context, tx *db.Tx) (DeviceLogin, error) {
		l := DeviceLogin{DeviceCode: newSecret(), Interval: dl.cfg.DeviceInterval}
		code := newUserCode()
		l.UserCode = code[:codeLen/2] + "-" + code[codeLen/2:]
		var err error
		l.ExpiresAt, err = tx.Q.InsertDeviceLogin(ctx, dbq.InsertDeviceLoginParams{
			DeviceHash: hashSecret(l.DeviceCode), UserCode: code, Machine: text.Clip(machine, maxMachine),
			Address: text.Clip(address, 100), LifeS: deviceLife.Seconds(),
		})
		if err != nil {
			return DeviceLogin{}, fmt.Errorf("insert device login: %w", err)
		}
		return l, nil
	})
}

// newUserCode returns 8 letters, each of 20 with the same probability: 34 bits for 10 minutes.
func newUserCode() string {
	code := make([]byte, 0, codeLen)
	for b := make([]byte, 1); len(code) < codeLen; {
		rand.Read(b)
		if int(b[0]) < 256/len(codeLetters)*len(codeLetters) {
			code = append(code, codeLetters[int(b[0])%len(codeLetters)])
		}
	}
	return string(code)
}

// normalUserCode returns what a person typed without dashes and spaces, in upper case.
func normalUserCode(s string) string {
	return strings.ToUpper(strings.NewReplacer("-", "", " ", "").Replace(strings.TrimSpace(s)))
}

// DeviceRequest is a login that waits for an answer, as its program describes itself.
type DeviceRequest struct {
	Machine   string // what the program says
	Address   string // where it called from
	Near      bool   // that is also where the person calls from
	CreatedAt time.Time
}

func errDeviceCode() error {
	return fault.InvalidField("code", "is not a code that waits: look at your terminal, or run muster login again")
}

// ByCode returns the login of the code that the principal entered. Faults: Invalid, RateLimited.
func (dl *DeviceLogins) ByCode(ctx context.Context, p Principal, code string) (DeviceRequest, error) {
	if err := countAttempt(ctx, dl.db.Q, "device-code:"+p.User.String(), deviceTries, signInWindow); err != nil {
		return DeviceRequest{}, err
	}
	r, err := dl.db.Q.DeviceLoginByCode(ctx, normalUserCode(code))
	if db.NoRows(err) {
		return DeviceRequest{}, errDeviceCode()
	}
	if err != nil {
		return DeviceRequest{}, fmt.Errorf("find device login: %w", err)
	}
	return DeviceRequest{r.Machine, r.Address, prefix(r.Address) == prefix(p.Address), r.CreatedAt}, nil
}

// Answer grants a login a token of the principal's org with the scopes, or denies it (no scopes). Only a
// session can: a token makes others with Tokens.Create, which bounds them. Faults: Invalid, Forbidden, RateLimited.
func (dl *DeviceLogins) Answer(ctx context.Context, p Principal, code string, scopes []string) error {
	if p.Session.IsZero() {
		return fault.New(fault.Forbidden, "sign in with a browser to answer")
	}
	if err := countAttempt(ctx, dl.db.Q, "device-code:"+p.User.String(), deviceTries, signInWindow); err != nil {
		return err
	}
	answer, action := "denied", "device_login.deny"
	if len(scopes) > 0 {
		answer, action = "granted", "device_login.grant"
	}
	for _, s := range scopes {
		if !p.Can(s) {
			return fault.New(fault.Forbidden, "you cannot give the scope %q, which you do not have", s)
		}
	}
	return dl.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r, err := tx.Q.AnswerDeviceLogin(ctx, dbq.AnswerDeviceLoginParams{
			Answer: answer, UserID: p.User, OrgID: p.Org, Scopes: append([]string{}, scopes...),
			UserCode: normalUserCode(code),
		})
		if db.NoRows(err) {
			return errDeviceCode()
		}
		if err != nil {
			return fmt.Errorf("answer device login: %w", err)
		}
		e := p.Event("device_login.grant", p.User.String(), map[string]any{"machine": r.Machine, "scopes": scopes})
		if action == "device_login.deny" {
			e = p.Event("device_login.deny", p.User.String(), map[string]any{"machine": r.Machine})
		}
		return audit.Record(ctx, tx, e)
	})
}

// States of a login that is polled.
const (
	DevicePending = "pending"
	DeviceSlow    = "slow_down" // polled before the interval was over: wait 5 seconds longer from now on
	DeviceGranted = "granted"
	DeviceDenied  = "denied"
	DeviceExpired = "expired" // or its token was fetched already
)

// DeviceAnswer is what a poll returns.
type DeviceAnswer struct {
	Status string
	Token  string // secret, with DeviceGranted: shown once
}

// Poll returns the answer to a login. The poll that finds it granted makes the token, within the rights that
// the person still has, and ends the login. Faults: RateLimited, and those of Tokens.Create.
func (dl *DeviceLogins) Poll(ctx context.Context, deviceCode, address string, once idem.Request) (DeviceAnswer,
	idem.Outcome, error) {
	if err := countAttempt(ctx, dl.db.Q, "device-poll:"+prefix(address), 60*devicesPerHour, time.Hour); err != nil {
		return DeviceAnswer{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, dl.db, once, func(ctx context.Context, tx *db.Tx) (DeviceAnswer, error) {
		hash := hashSecret(deviceCode)
		r, err := tx.Q.PollDeviceLogin(ctx, dl.cfg.DeviceInterval.Seconds(), hash)
		switch {
		case db.NoRows(err):
			return DeviceAnswer{Status: DeviceExpired}, nil
		case err != nil:
			return DeviceAnswer{}, fmt.Errorf("poll device login: %w", err)
		case r.Answer == "" && r.Early:
			return DeviceAnswer{Status: DeviceSlow}, nil
		case r.Answer == "":
			return DeviceAnswer{Status: DevicePending}, nil
		}
		if err := tx.Q.DeleteDeviceLogin(ctx, hash); err != nil {
			return DeviceAnswer{}, fmt.Errorf("end device login: %w", err)
		}
		if r.Answer == "denied" {
			return DeviceAnswer{Status: DeviceDenied}, nil
		}
		return grantDevice(ctx, tx, r)
	})
}

func grantDevice(ctx context.Context, tx *db.Tx, r dbq.PollDeviceLoginRow) (DeviceAnswer, error) {
	u, err := tx.Q.UserProfile(ctx, r.UserID, r.OrgID)
	if db.NoRows(err) { // no longer a member
		return DeviceAnswer{Status: DeviceDenied}, nil
	}
	if err != nil {
		return DeviceAnswer{}, fmt.Errorf("read user: %w", err)
	}
	p := Principal{User: r.UserID, Org: r.OrgID, Role: Role(u.Role), Scopes: sessionScopes(Role(u.Role), u.Admin),
		Admin: u.Admin, Email: u.Email, OrgName: u.OrgName, Address: r.Address}
	if slices.ContainsFunc(r.Scopes, func(s string) bool { return !p.Can(s) }) {
		return DeviceAnswer{Status: DeviceDenied}, nil // lost since it was granted
	}
	_, secret, err := createToken(ctx, tx, p, NewToken{Name: "muster login on " + r.Machine, Scopes: r.Scopes})
	return DeviceAnswer{DeviceGranted, secret}, err
}

// endDeviceLogins ends logins that a user has granted and whose token was not fetched.
func endDeviceLogins(ctx context.Context, tx *db.Tx, user id.User) error {
	if err := tx.Q.DeleteDeviceLoginsOfUser(ctx, user); err != nil {
		return fmt.Errorf("end device logins: %w", err)
	}
	return nil
}
