package account

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
)

const (
	signInWindow = 15 * time.Minute
	signUpWindow = time.Hour
)

// countSignIn counts an attempt before it is looked at: attempts that run at the same moment cannot all slip under the
// limit. passed is called once the password was right: it takes the count back and remembers the place.
//
// A place where the account was signed in to during the last 90 days has a count of its own: strangers who try an
// account's password until it is locked do not lock out its owner.
func (ps *Passwords) countSignIn(ctx context.Context, email,
	address string) (passed func(context.Context) error, err error) {
	sum := sha256.Sum256([]byte(email))
	account, from := "account:"+hex.EncodeToString(sum[:]), "address:"+prefix(address)
	if err := countAttempt(ctx, ps.db.Q, from, ps.cfg.AddressTries, signInWindow); err != nil {
		return nil, err
	}
	place := ""
	if address != "" {
		place = "known:" + strings.TrimPrefix(account, "account:") + ":" + prefix(address)
		known, err := ps.db.Q.KnownPlace(ctx, place)
		if err != nil {
			return nil, fmt.Errorf("look up the place: %w", err)
		}
		if known {
			account += ":" + prefix(address)
		}
	}
	if err := countAttempt(ctx, ps.db.Q, account, ps.cfg.AccountTries, signInWindow); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := ps.db.Q.ForgetAttempts(ctx, account); err != nil {
			return err
		}
		if place != "" {
			if err := ps.db.Q.NotePlace(ctx, place); err != nil {
				return err
			}
		}
		return ps.db.Q.ForgiveAttempt(ctx, from)
	}, nil
}

func (su *SignUps) count(ctx context.Context, address string) error {
	return countAttempt(ctx, su.db.Q, "signup:"+prefix(address), su.cfg.SignUpsPerHour, signUpWindow)
}

// countAttempt counts one more attempt. A call without an address comes from the platform itself (a command on the
// server, its own set-up): only the account's limit holds for it.
func countAttempt(ctx context.Context, q *dbq.Queries, key string, limit int, window time.Duration) error {
	if strings.HasSuffix(key, ":") {
		return nil
	}
	r, err := q.CountAttempt(ctx, key, window.Seconds())
	if err != nil {
		return fmt.Errorf("count attempt: %w", err)
	}
	if int(r.Failures) <= limit {
		return nil
	}
	return tooManyAttempts(r.SecondsLeft)
}

func tooManyAttempts(secondsLeft float64) error {
	f := fault.New(fault.RateLimited, "too many attempts: wait and try again")
	f.RetryAfter = max(time.Second, time.Duration(secondsLeft*float64(time.Second)).Round(time.Second))
	return f
}

// prefix is what counts as one address ("" for none): an IPv4 address, or the /64 a network gives to one customer in
// IPv6.
func prefix(address string) string {
	if address == "" {
		return ""
	}
	ap, err := netip.ParseAddrPort(address)
	ip := ap.Addr()
	if err != nil {
		if ip, err = netip.ParseAddr(address); err != nil {
			return "unknown"
		}
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, err := ip.Prefix(64)
	if err != nil {
		return "unknown"
	}
	return p.String()
}
