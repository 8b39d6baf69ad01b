package account_test

import (
	"context"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

type ctx = context.Context

// wait fails the test unless c ends.
func wait(t *testing.T, what string, c ctx) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(time.Minute):
		t.Errorf("%s goes on", what)
	}
}

// TestStreamsEndWithTheirCredential: each way of losing access closes the streams opened with it, and no others.
func TestStreamsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *db.DB, *account.Accounts, account.Principal,
		account.Principal) error{
		"token revoked": func(t *testing.T, _ *db.DB, a *account.Accounts, session, token account.Principal) error {
			return a.Tokens.Revoke(t.Context(), session, token.Token)
		},
		"session ended": func(t *testing.T, _ *db.DB, a *account.Accounts, session, _ account.Principal) error {
			return a.Sessions.End(t.Context(), session, session.Session)
		},
		"membership ended": func(t *testing.T, d *db.DB, _ *account.Accounts, session, _ account.Principal) error {
			_, err := d.Pool.Exec(t.Context(), "DELETE FROM membership WHERE user_id = $1", session.User)
			return err
		},
		"key deleted": func(t *testing.T, d *db.DB, _ *account.Accounts, _, _ account.Principal) error {
			_, err := d.Pool.Exec(t.Context(), "DELETE FROM ssh_key")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, a := open(t, account.Config{RecheckEvery: 10 * time.Millisecond})
			register(t, a, "ada@example.com")
			_, session, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
			if err != nil {
				t.Fatal(err)
			}
			token, _ := issue(t, a, session, account.NewToken{Scopes: []string{account.ScopeRead}})
			key, _, err := a.SSHKeys.Add(t.Context(), session, "k",
				"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", idem.Request{})
			if err != nil {
				t.Fatal(err)
			}
			byKey := account.Credential{Org: session.Org, User: session.User, Key: key.Fingerprint}
			bySession, leave := a.Credentials.WhileIn(t.Context(), session.Credential())
			defer leave()
			second, leave := a.Credentials.WhileIn(t.Context(), session.Credential())
			defer leave()
			byToken, leave := a.Credentials.WhileIn(t.Context(), token.Credential())
			defer leave()
			keyed, leave := a.Credentials.WhileIn(t.Context(), byKey)
			defer leave()
			if err := lose(t, d, a, session, token); err != nil {
				t.Fatal(err)
			}
			ends := map[string]bool{
				"session": name == "session ended",
				"token":   name == "token revoked",
				"key":     name == "key deleted",
			}
			for what, ctx := range map[string]ctx{"session": bySession, "token": byToken, "key": keyed} {
				switch {
				case ends[what] || name == "membership ended":
					wait(t, what, ctx)
				case ctx.Err() != nil:
					t.Errorf("the stream of the %s ended", what)
				}
			}
			if name == "session ended" {
				wait(t, "the second stream of the session", second)
			}
		})
	}
}

func TestPasswordResetByMail(t *testing.T) {
	t.Parallel()
	var mail []account.Letter
	var taken []id.Org
	d, a := open(t, account.Config{PublicURL: "https://muster.test", Post: func(_ ctx, _ *db.Tx, l account.Letter) error {
		mail = append(mail, l)
		return nil
	}, TakenOver: func(_ ctx, _ *db.Tx, org id.Org) error {
		taken = append(taken, org)
		return nil
	}})
	mallory := register(t, a, "ada@example.com") // the one who signed up first: the address is not verified
	mallory.Scopes = account.Scopes()
	_, stolen := issue(t, a, mallory, account.NewToken{Scopes: account.Scopes()})
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.SSHKeys.Add(t.Context(), mallory, "m", string(ssh.MarshalAuthorizedKey(signer.PublicKey())),
		idem.Request{}); err != nil {
		t.Fatal(err)
	}
	session, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	mail = nil
	if err := a.Passwords.SendReset(t.Context(), "nobody@example.com", "192.0.2.1"); err != nil || len(mail) != 0 {
		t.Errorf("an unknown address: %v, %d mails", err, len(mail))
	}
	for range 7 {
		if err := a.Passwords.SendReset(t.Context(), " Ada@Example.com", "192.0.2.1"); err != nil {
			t.Errorf("a known address: %v", err)
		}
	}
	if len(mail) != 5 {
		t.Fatalf("%d mails", len(mail))
	}
	secret := func(l account.Letter) string {
		_, rest, _ := strings.Cut(l.Body, "/reset-password/")
		return rest[:43]
	}
	if err := a.Passwords.Reset(t.Context(), secret(mail[0]), "short", "192.0.2.1", false); !fault.Is(err, fault.Invalid) {
		t.Errorf("a short password: %v", err)
	}
	const fresh = "a password of my own"
	if err := a.Passwords.Reset(t.Context(), secret(mail[0]), fresh, "192.0.2.1", false); err != nil {
		t.Fatal(err)
	}
	for _, l := range mail { // the same link again, and the others sent
		if err := a.Passwords.Reset(t.Context(), secret(l), "yet another password", "192.0.2.1", false); !fault.Is(err,
			fault.NotFound) {
			t.Errorf("a used link: %v", err)
		}
	}
	if _, err := a.Sessions.Principal(t.Context(), session); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("a session from before: %v", err)
	}
	if _, err := a.Tokens.Principal(t.Context(), stolen); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("a token of whoever signed up with somebody else's address: %v", err)
	}
	_, p, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: fresh})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := a.SSHKeys.List(t.Context(), p, account.Page[id.SSHKey]{Limit: 10}); err != nil || len(keys) != 0 {
		t.Errorf("SSH keys of whoever signed up with somebody else's address: %v, %v", keys, err)
	}
	if !slices.Equal(taken, []id.Org{p.Org}) {
		t.Errorf("taken over: %v", taken)
	}
	if me, err := a.Profile(t.Context(), p); err != nil || !me.Verified {
		t.Errorf("%+v, %v", me, err)
	}
	exec(t, d, "UPDATE password_reset SET used_at = NULL, expires_at = clock_timestamp()")
	if err := a.Passwords.Reset(t.Context(), secret(mail[1]), fresh, "192.0.2.1", false); !fault.Is(err, fault.NotFound) {
		t.Errorf("an expired link: %v", err)
	}
}

func TestSignInTakesAnyUserAgent(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{})
	register(t, a, "ada@example.com")
	for _, ua := range []string{strings.Repeat("a", 299) + "é", "\xff", "a\x00b"} {
		if _, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{
			Email:     "ada@example.com",
			Password:  password,
			UserAgent: ua,
		}); err != nil {
			t.Errorf("%.5q: %v", ua, err)
		}
	}
}
