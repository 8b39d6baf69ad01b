package account_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// guarded is an account with an authenticator app.
type guarded struct {
	team
	secret   string
	recovery []string
}

func newGuarded(t *testing.T) guarded {
	t.Helper()
	box, err := seal.NewBox(bytes.Repeat([]byte{3}, 32))
	if err != nil {
		t.Fatal(err)
	}
	var sent []account.Letter
	d := dbtest.New(t)
	x := team{t, d, account.New(d, account.Config{PublicURL: "http://muster.test", Box: box, HashMemoryKiB: cheapHash,
		Post: func(_ context.Context, _ *db.Tx, l account.Letter) error {
			sent = append(sent, l)
			return nil
		}}), &sent, account.Principal{}}
	x.ada = x.person("ada")
	g := guarded{team: x}
	setup, err := x.a.SecondFactors.BeginTOTP(t.Context(), x.ada, password)
	if err != nil {
		t.Fatal(err)
	}
	g.secret = setup.Secret
	if g.recovery, err = x.a.SecondFactors.ConfirmTOTP(t.Context(), x.ada, g.code(-30*time.Second)); err != nil {
		t.Fatal(err)
	}
	return g
}

// code is the app's code at a time from now.
func (g guarded) code(from time.Duration) string {
	g.t.Helper()
	c, err := totp.GenerateCode(g.secret, time.Now().Add(from))
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// challenge signs in with the password.
func (g guarded) challenge() string {
	g.t.Helper()
	secret, p, err := g.a.Sessions.SignIn(g.t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
	var need *account.SecondFactorNeeded
	if !errors.As(err, &need) || secret != "" || !p.User.IsZero() {
		g.t.Fatalf("the password alone: %v", err)
	}
	return need.Challenge
}

func (g guarded) finish(challenge, code string) error {
	secret, p, err := g.a.SecondFactors.FinishSignIn(g.t.Context(), challenge, code, account.SignIn{})
	if err == nil {
		if q, err := g.a.Sessions.Principal(g.t.Context(), secret); err != nil || q.User != p.User {
			g.t.Errorf("the session: %v", err)
		}
	}
	return err
}

func TestSignIn_NeedsTheCode(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c := g.challenge()
	if err := g.finish(c, "000000"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a wrong code: %v", err)
	}
	now := g.code(0)
	if err := g.finish(c, now); err != nil {
		t.Fatal(err)
	}
	if err := g.finish(c, g.code(30*time.Second)); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("the challenge again: %v", err)
	}
	if err := g.finish(g.challenge(), now); !fault.Is(err, fault.Invalid) {
		t.Errorf("the code again: %v", err)
	}
	if err := g.finish(g.challenge(), g.recovery[0]); err != nil {
		t.Errorf("a recovery code: %v", err)
	}
	if err := g.finish(g.challenge(), g.recovery[0]); !fault.Is(err, fault.Invalid) {
		t.Errorf("the recovery code again: %v", err)
	}
	if f, err := g.a.SecondFactors.Of(t.Context(), g.ada); err != nil || !f.TOTP || f.RecoveryCodes != 9 {
		t.Errorf("%+v %v", f, err)
	}
}

// One code opens one session, also when two requests bring it at the same time.
func TestSignIn_ACodeWorksOnceAtATime(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	a, b, code := g.challenge(), g.challenge(), g.code(0)
	var e errgroup.Group
	results := make(chan error, 2)
	for _, c := range []string{a, b} {
		e.Go(func() error { results <- g.finish(c, code); return nil })
	}
	_ = e.Wait()
	one, two := <-results, <-results
	if (one == nil) == (two == nil) {
		t.Errorf("%v, %v", one, two)
	}
}

func TestSignIn_WrongCodesAreLimitedAndMailed(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	c := g.challenge()
	for range 5 {
		if err := g.finish(c, "000000"); !fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
	}
	if err := g.finish(c, g.code(0)); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("the right code after five wrong ones: %v", err)
	}
	if last := (*g.sent)[len(*g.sent)-1]; last.Subject != "A sign-in with wrong codes" || last.To != "ada@example.com" {
		t.Errorf("%+v", last)
	}
	for {
		_, _, err := g.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
		if fault.Is(err, fault.RateLimited) {
			break
		}
		var need *account.SecondFactorNeeded
		if !errors.As(err, &need) {
			t.Fatal(err)
		}
		if err := g.finish(need.Challenge, "000000"); fault.Is(err, fault.RateLimited) {
			break
		}
	}
}

func TestRemoveTOTP_NeedsPasswordAndCode(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	if err := g.a.SecondFactors.RemoveTOTP(t.Context(), g.ada, "not the password", g.code(0)); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("a wrong password: %v", err)
	}
	if err := g.a.SecondFactors.RemoveTOTP(t.Context(), g.ada, password, "000000"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a wrong code: %v", err)
	}
	if _, err := g.a.SecondFactors.BeginTOTP(t.Context(), g.ada, password); !fault.Is(err, fault.Conflict) {
		t.Errorf("another app in its place: %v", err)
	}
	if err := g.a.SecondFactors.RemoveTOTP(t.Context(), g.ada, password, g.code(0)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com",
		Password: password}); err != nil {
		t.Error(err)
	}
}

// A new password by mail does not remove the second factor of a verified address; for one that was never verified,
// where a stranger may have set it up, it does.
func TestResetPassword_AndTheSecondFactor(t *testing.T) {
	t.Parallel()
	for verified, kept := range map[bool]bool{true: true, false: false} {
		g := newGuarded(t)
		if !verified {
			g.exec("UPDATE app_user SET email_verified_at = NULL")
		}
		if err := g.a.Passwords.SendReset(t.Context(), "ada@example.com", ""); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut((*g.sent)[len(*g.sent)-1].Body, "/reset-password/")
		secret, _, _ := strings.Cut(rest, "\n")
		if err := g.a.Passwords.Reset(t.Context(), secret, "a new horse battery", "", false); err != nil {
			t.Fatal(err)
		}
		f, err := g.a.SecondFactors.Of(t.Context(), g.ada)
		if err != nil || f.TOTP != kept {
			t.Errorf("verified %v: %+v %v", verified, f, err)
		}
	}
}

func TestReseal_SecretsOpenWithTheNewSecretAlone(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	old, fresh := bytes.Repeat([]byte{3}, 32), bytes.Repeat([]byte{4}, 32)
	both, err := seal.NewRotatingBox(fresh, old)
	if err != nil {
		t.Fatal(err)
	}
	withBoth := account.New(g.db, account.Config{Box: both, HashMemoryKiB: cheapHash})
	if n, err := withBoth.SecondFactors.Reseal(t.Context()); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	box, err := seal.NewBox(fresh)
	if err != nil {
		t.Fatal(err)
	}
	g.a = account.New(g.db, account.Config{Box: box, HashMemoryKiB: cheapHash})
	if err := g.finish(g.challenge(), g.code(0)); err != nil {
		t.Error(err)
	}
	if err := g.a.SecondFactors.Reset(t.Context(), "ada@example.com"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com",
		Password: password}); err != nil {
		t.Error(err)
	}
}
