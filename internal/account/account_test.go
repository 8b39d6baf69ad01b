package account_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const password = "correct horse battery"

// cheapHash is the memory of a hash in tests, in KiB: with the race detector, one of 19 MiB takes 0.3 s of CPU time.
const cheapHash = 64

func open(t *testing.T, cfg account.Config) (*db.DB, *account.Accounts) {
	t.Helper()
	d := dbtest.New(t)
	cfg.HashMemoryKiB = cheapHash
	return d, account.New(d, cfg)
}

func register(t *testing.T, a *account.Accounts, email string) account.Principal {
	t.Helper()
	p, err := a.SignUps.Register(t.Context(), account.SignUp{Email: email, Password: password, Address: "192.0.2.1:1000"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSignUpMakesUserAndOrg(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	p := register(t, a, "  Ada@Example.COM ")
	if p.Email != "ada@example.com" || p.OrgName != "ada" || p.Org.IsZero() || p.User.IsZero() {
		t.Errorf("principal %+v", p)
	}
	_, err := a.SignUps.Register(t.Context(), account.SignUp{Email: "ADA@example.com", Password: password})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("second sign-up: %v", err)
	}
	var orgs int
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM org").Scan(&orgs); err != nil || orgs != 1 {
		t.Errorf("%d orgs, %v: the refused sign-up left something", orgs, err)
	}
	trail, err := audit.List(t.Context(), d.Q, p.Org, id.Audit{}, 10)
	if err != nil || len(trail) != 1 || trail[0].Action != "user.sign_up" || trail[0].User != p.User {
		t.Errorf("trail %+v, %v", trail, err)
	}
}

func TestSignUpRefuses(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{})
	for name, tc := range map[string]struct{ email, password, where string }{
		"no e-mail":       {"", password, "email"},
		"not an address":  {"ada", password, "email"},
		"with a name":     {"Ada <ada@example.com>", password, "email"},
		"two addresses":   {"a@example.com,b@example.com", password, "email"},
		"control":         {"a\x00@example.com", password, "email"},
		"too long":        {strings.Repeat("a", 250) + "@example.com", password, "email"},
		"short password":  {"ada@example.com", "123456789", "password"},
		"long password":   {"ada@example.com", strings.Repeat("ä", 201) + "b", "password"},
		"password is you": {"ada@example.com", "Ada@Example.com", "password"},
		"one character":   {"ada@example.com", "aaaaaaaaaaaa", "password"},
		"not text":        {"ada@example.com", "\xff\xfe aaaaaaaaaaa", "password"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.SignUps.Register(t.Context(), account.SignUp{Email: tc.email, Password: tc.password})
			f := fault.From(err)
			if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Location != tc.where {
				t.Fatalf("got %v", err)
			}
			if strings.Contains(err.Error(), tc.password) {
				t.Error("the message repeats the password")
			}
		})
	}
}

func TestSignUpCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{SignUpOff: true})
	_, err := a.SignUps.Register(t.Context(), account.SignUp{Email: "ada@example.com", Password: password})
	if !fault.Is(err, fault.Forbidden) {
		t.Errorf("got %v", err)
	}
}

func TestSignUpsPerAddressAreLimited(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{SignUpsPerHour: 2})
	for i := range 3 {
		_, err := a.SignUps.Register(t.Context(), account.SignUp{
			Email: fmt.Sprintf("u%d@example.com", i), Password: password, Address: fmt.Sprintf("[2001:db8::%d]:1", i),
		})
		if limited := fault.Is(err, fault.RateLimited); limited != (i == 2) {
			t.Errorf("sign-up %d: %v", i, err)
		}
	}
}

func TestSessionLife(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	owner := register(t, a, "ada@example.com")
	in := account.SignIn{Email: " ADA@example.com", Password: password, Address: "192.0.2.7:99", UserAgent: "test"}
	secret, p, err := a.Sessions.SignIn(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Sessions.Principal(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	p.Address = ""
	if diff := cmp.Diff(p, got, cmp.Comparer(func(a, b id.User) bool { return a == b }),
		cmp.Comparer(func(a, b id.Org) bool { return a == b }),
		cmp.Comparer(func(a, b id.Token) bool { return a == b }),
		cmp.Comparer(func(a, b id.Session) bool { return a == b })); diff != "" {
		t.Errorf("principal differs from the one at sign-in:\n%s", diff)
	}
	if got.Org != owner.Org || got.Admin || !got.Can(account.ScopeBilling) || got.Can(account.ScopeAdmin) {
		t.Errorf("principal %+v", got)
	}
	var stored int
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM session s WHERE s::text LIKE '%' || $1 || '%'",
		secret).Scan(&stored); err != nil || stored != 0 {
		t.Errorf("the secret is stored: %d, %v", stored, err)
	}

	second, _, err := a.Sessions.SignIn(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := a.Sessions.List(t.Context(), got); err != nil || len(list) != 2 {
		t.Errorf("sessions %+v, %v", list, err)
	}
	if err := a.Sessions.SignOut(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sessions.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("after sign-out: %v", err)
	}
	p2, err := a.Sessions.Principal(t.Context(), second)
	if err != nil {
		t.Fatalf("the other session ended too: %v", err)
	}
	if n, err := a.Sessions.SignOutEverywhere(t.Context(), p2); err != nil || n != 1 {
		t.Errorf("%d sessions ended, %v", n, err)
	}
	if _, err := a.Sessions.Principal(t.Context(), second); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("after sign-out everywhere: %v", err)
	}
}

func TestSessionEndsByTime(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"unused for long": "UPDATE session SET last_seen_at = clock_timestamp() - interval '15 days'",
		"too old":         "UPDATE session SET expires_at = clock_timestamp() - interval '1 second'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, a := open(t, account.Config{})
			register(t, a, "ada@example.com")
			secret, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
			if err != nil {
				t.Fatal(err)
			}
			exec(t, d, sql)
			if _, err := a.Sessions.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
				t.Errorf("got %v", err)
			}
			if s, err := a.Sweep(t.Context()); err != nil || s.Sessions != 1 {
				t.Errorf("swept %+v, %v", s, err)
			}
		})
	}
}

func TestRotationKeepsTheOldSecretForAMinute(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	register(t, a, "ada@example.com")
	secret, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	if fresh, err := a.Sessions.Rotate(t.Context(), secret); err != nil || fresh != "" {
		t.Fatalf("a young session was rotated: %q, %v", fresh, err)
	}
	exec(t, d, "UPDATE session SET rotated_at = clock_timestamp() - interval '13 hours'")
	fresh, err := a.Sessions.Rotate(t.Context(), secret)
	if err != nil || fresh == "" {
		t.Fatalf("not rotated: %v", err)
	}
	for _, s := range []string{secret, fresh} {
		if _, err := a.Sessions.Principal(t.Context(), s); err != nil {
			t.Errorf("right after rotation: %v", err)
		}
	}
	exec(t, d, "UPDATE session SET rotated_at = clock_timestamp() - interval '61 seconds'")
	if _, err := a.Sessions.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("the old secret still works: %v", err)
	}
	if _, err := a.Sessions.Principal(t.Context(), fresh); err != nil {
		t.Errorf("the fresh secret does not work: %v", err)
	}
}

func TestChangePasswordEndsOtherSessions(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{})
	register(t, a, "ada@example.com")
	in := account.SignIn{Email: "ada@example.com", Password: password}
	first, p, err := a.Sessions.SignIn(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := a.Sessions.SignIn(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Passwords.Change(t.Context(), p, "not the password", "another fine password", false); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("wrong old password: %v", err)
	}
	if err := a.Passwords.Change(t.Context(), p, password, "another fine password", false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Sessions.Principal(t.Context(), first); err != nil {
		t.Errorf("own session: %v", err)
	}
	if _, err := a.Sessions.Principal(t.Context(), other); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("other session: %v", err)
	}
	if _, _, err := a.Sessions.SignIn(t.Context(), in); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("old password: %v", err)
	}
}

func TestFailedSignInSaysNothing(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{AccountTries: 3})
	register(t, a, "ada@example.com")
	try := func(email string) error {
		_, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: email, Password: "wrong password",
			Address: "192.0.2.9"})
		return err
	}
	for i := range 5 {
		known, unknown := try("ada@example.com"), try("nobody@example.com")
		if known.Error() != unknown.Error() || fault.KindOf(known) != fault.KindOf(unknown) {
			t.Errorf("attempt %d tells them apart: %v / %v", i, known, unknown)
		}
	}
}

func TestSignInIsLimited(t *testing.T) {
	t.Parallel()
	t.Run("per account, right password too", func(t *testing.T) {
		t.Parallel()
		d, a := open(t, account.Config{AccountTries: 3, AddressTries: 1000})
		register(t, a, "ada@example.com")
		var wg sync.WaitGroup
		var mu sync.Mutex
		kinds := map[fault.Kind]int{}
		for i := range 12 {
			wg.Go(func() {
				_, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{
					Email:    "ada@example.com",
					Password: "wrong password",
					Address:  fmt.Sprintf("192.0.2.%d", i),
				})
				mu.Lock()
				defer mu.Unlock()
				kinds[fault.KindOf(err)]++
			})
		}
		wg.Wait()
		if want := map[fault.Kind]int{fault.Unauthorized: 3, fault.RateLimited: 9}; !cmp.Equal(kinds, want) {
			t.Errorf("12 attempts at once: %v", kinds)
		}
		_, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
		f := fault.From(err)
		if f == nil || f.Kind != fault.RateLimited || f.RetryAfter < time.Minute || f.RetryAfter > 15*time.Minute {
			t.Errorf("limited account: %v", err)
		}
		exec(t, d, "UPDATE login_throttle SET window_start = clock_timestamp() - interval '16 minutes'")
		if _, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com",
			Password: password}); err != nil {
			t.Errorf("after the window: %v", err)
		}
	})
	t.Run("strangers do not lock out the owner", func(t *testing.T) {
		t.Parallel()
		_, a := open(t, account.Config{AccountTries: 3, AddressTries: 1000})
		register(t, a, "ada@example.com")
		at := func(address, password string) error {
			_, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password,
				Address: address})
			return err
		}
		if err := at("198.51.100.7:5000", password); err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			if err := at(fmt.Sprintf("192.0.2.%d:1", i), "wrong password"); err == nil {
				t.Fatal("signed in with a wrong password")
			}
		}
		if err := at("203.0.113.1:1", password); !fault.Is(err, fault.RateLimited) {
			t.Errorf("a new place while strangers try: %v", err)
		}
		if err := at("198.51.100.7:6000", password); err != nil {
			t.Errorf("the owner's own place while strangers try: %v", err)
		}
		for range 3 {
			if err := at("198.51.100.7:7000", "wrong password"); !fault.Is(err, fault.Unauthorized) {
				t.Errorf("a wrong password at a known place: %v", err)
			}
		}
		if err := at("198.51.100.7:7000", password); !fault.Is(err, fault.RateLimited) {
			t.Errorf("a known place has no limit: %v", err)
		}
	})
	t.Run("per address", func(t *testing.T) {
		t.Parallel()
		_, a := open(t, account.Config{AddressTries: 2})
		for i := range 3 {
			_, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{
				Email:    fmt.Sprintf("u%d@example.com", i),
				Password: "wrong password",
				Address:  "192.0.2.1:5",
			})
			if limited := fault.Is(err, fault.RateLimited); limited != (i == 2) {
				t.Errorf("attempt %d: %v", i, err)
			}
		}
	})
	t.Run("a right password clears the account", func(t *testing.T) {
		t.Parallel()
		_, a := open(t, account.Config{AccountTries: 3, AddressTries: 3})
		register(t, a, "ada@example.com")
		for i := range 8 {
			if _, _, err := a.Sessions.SignIn(t.Context(), account.SignIn{
				Email:    "ada@example.com",
				Password: password,
				Address:  "192.0.2.1",
			}); err != nil {
				t.Fatalf("sign-in %d: %v", i, err)
			}
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	owner := register(t, a, "ada@example.com")
	tok, secret, err := a.Tokens.Issue(t.Context(), owner, account.NewToken{
		Name:    "ci",
		Scopes:  []string{"clusters", "read", "read"},
		Expires: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(secret, account.TokenPrefix) || !strings.HasSuffix(secret, tok.Hint) ||
		!slices.Equal(tok.Scopes, []string{"read", "clusters"}) || tok.ExpiresAt == nil {
		t.Errorf("token %+v", tok)
	}
	p, err := a.Tokens.Principal(t.Context(), secret)
	if err != nil || p.Org != owner.Org || p.Token != tok.ID || p.Can(account.ScopeBilling) ||
		!p.Can(account.ScopeClusters) {
		t.Fatalf("principal %+v, %v", p, err)
	}
	if p.Key() == owner.Key() {
		t.Error("token and user share a key")
	}
	t.Run("cannot outgrow itself", func(t *testing.T) {
		if _, _, err := a.Tokens.Issue(t.Context(), p, account.NewToken{
			Name:   "x",
			Scopes: []string{"billing"},
		}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("got %v", err)
		}
		if _, _, err := a.Tokens.Issue(t.Context(), owner, account.NewToken{
			Name:   "x",
			Scopes: []string{"admin"},
		}); !fault.Is(err, fault.Forbidden) {
			t.Errorf("admin: %v", err)
		}
		mighty, _, err := a.Tokens.Issue(t.Context(), owner, account.NewToken{Name: "all", Scopes: account.Scopes()})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Tokens.Revoke(t.Context(), p, mighty.ID); !fault.Is(err, fault.Forbidden) {
			t.Errorf("revoke a mightier one: %v", err)
		}
	})
	t.Run("another org's looks missing", func(t *testing.T) {
		stranger := register(t, a, "eve@example.com")
		if err := a.Tokens.Revoke(t.Context(), stranger, tok.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("got %v", err)
		}
		if list, err := a.Tokens.List(t.Context(), stranger,
			account.Page[id.Token]{Limit: 10}); err != nil || len(list) != 0 {
			t.Errorf("stranger sees %v, %v", list, err)
		}
	})
	t.Run("pages", func(t *testing.T) {
		first, err := a.Tokens.List(t.Context(), owner, account.Page[id.Token]{Limit: 1})
		if err != nil || len(first) != 1 || first[0].Name != "all" {
			t.Fatalf("%+v, %v", first, err)
		}
		rest, err := a.Tokens.List(t.Context(), owner, account.Page[id.Token]{Limit: 5, After: first[0].ID})
		if err != nil || len(rest) != 1 || rest[0].ID != tok.ID || rest[0].LastUsedAt == nil {
			t.Fatalf("%+v, %v", rest, err)
		}
	})
	t.Run("bad input", func(t *testing.T) {
		for _, n := range []account.NewToken{
			{Scopes: []string{"read"}}, {Name: "x"}, {Name: "x", Scopes: []string{"root"}},
			{Name: "x", Scopes: []string{"read"}, Expires: -1}, {Name: "a\nb", Scopes: []string{"read"}},
		} {
			if _, _, err := a.Tokens.Issue(t.Context(), owner, n); !fault.Is(err, fault.Invalid) {
				t.Errorf("%+v: %v", n, err)
			}
		}
		for _, s := range []string{"", "x", secret + "0", secret[:len(secret)-1], strings.ToUpper(secret)} {
			if _, err := a.Tokens.Principal(t.Context(), s); !fault.Is(err, fault.Unauthorized) {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
	exec(t, d, "UPDATE api_token SET expires_at = clock_timestamp() - interval '1 second' WHERE name = 'ci'")
	if _, err := a.Tokens.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("expired: %v", err)
	}
	exec(t, d, "UPDATE api_token SET expires_at = NULL WHERE name = 'ci'")
	if err := a.Tokens.Revoke(t.Context(), p, p.Token); err != nil {
		t.Errorf("a token ends itself: %v", err)
	}
	if _, err := a.Tokens.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("revoked: %v", err)
	}
}

func TestAdminIsGivenByTheOperator(t *testing.T) {
	t.Parallel()
	_, a := open(t, account.Config{})
	register(t, a, "ada@example.com")
	if err := a.SetAdmin(t.Context(), "nobody@example.com", true); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown user: %v", err)
	}
	if err := a.SetAdmin(t.Context(), "Ada@example.com", true); err != nil {
		t.Fatal(err)
	}
	_, p, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
	if err != nil || !p.Admin {
		t.Fatalf("%+v, %v", p, err)
	}
	_, plain, err := a.Tokens.Issue(t.Context(), p, account.NewToken{Name: "plain", Scopes: account.Scopes()})
	if err != nil {
		t.Fatal(err)
	}
	if q, err := a.Tokens.Principal(t.Context(), plain); err != nil || q.Admin {
		t.Errorf("an admin's everyday token is an admin's: %+v, %v", q, err)
	}
	_, root, err := a.Tokens.Issue(t.Context(), p, account.NewToken{Name: "root", Scopes: []string{"admin"}})
	if err != nil {
		t.Fatal(err)
	}
	if q, err := a.Tokens.Principal(t.Context(), root); err != nil || !q.Admin {
		t.Errorf("%+v, %v", q, err)
	}
}

func exec(t *testing.T, d *db.DB, sql string) {
	t.Helper()
	if _, err := d.Pool.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
		t.Fatal(err)
	}
}

// Who came with a token is in until it is revoked or has expired; with or without one, as long as they are of the org.
func TestStillIn(t *testing.T) {
	t.Parallel()
	d, a := open(t, account.Config{})
	ada, eve := register(t, a, "ada@example.com"), register(t, a, "eve@example.com")
	tok, _, err := a.Tokens.Issue(t.Context(), ada, account.NewToken{
		Name:    "ci",
		Scopes:  []string{"clusters"},
		Expires: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, p account.Principal, user id.User, token id.Token, want bool) {
		t.Helper()
		if in, err := a.Credentials.StillIn(t.Context(), account.Credential{
			Org:   p.Org,
			User:  user,
			Token: token,
		}); err != nil || in != want {
			t.Errorf("%s: %v %v, want %v", what, in, err, want)
		}
	}
	check("by session", ada, ada.User, id.Token{}, true)
	check("by token", ada, ada.User, tok.ID, true)
	check("somebody else", ada, eve.User, id.Token{}, false)
	check("another org's token", eve, eve.User, tok.ID, false)
	check("no token at all", ada, ada.User, id.New[id.Token](), false)
	if _, err := d.Pool.Exec(t.Context(), "UPDATE api_token SET expires_at = clock_timestamp() WHERE id = $1",
		tok.ID); err != nil {
		t.Fatal(err)
	}
	session, open, err := a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	for idle, want := range map[string]bool{"13 days": true, "15 days": false} {
		exec(t, d, "UPDATE session SET last_seen_at = clock_timestamp() - '"+idle+"'::interval")
		if in, err := a.Credentials.StillIn(t.Context(), open.Credential()); err != nil || in != want {
			t.Errorf("a session that was idle for %s: %v %v", idle, in, err)
		}
		if _, err := a.Sessions.Principal(t.Context(), session); (err == nil) != want {
			t.Errorf("a session that was idle for %s: %v", idle, err)
		}
	}
	check("an expired token", ada, ada.User, tok.ID, false)
	if _, err := d.Pool.Exec(t.Context(), "UPDATE api_token SET expires_at = NULL WHERE id = $1", tok.ID); err != nil {
		t.Fatal(err)
	}
	check("a token that never expires", ada, ada.User, tok.ID, true)
	if err := a.Tokens.Revoke(t.Context(), ada, tok.ID); err != nil {
		t.Fatal(err)
	}
	check("a revoked token", ada, ada.User, tok.ID, false)
	if _, err := d.Pool.Exec(t.Context(), "DELETE FROM membership WHERE user_id = $1", ada.User); err != nil {
		t.Fatal(err)
	}
	check("who has left", ada, ada.User, id.Token{}, false)
}
