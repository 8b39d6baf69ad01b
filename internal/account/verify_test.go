package account_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
)

var link = regexp.MustCompile(`http://muster\.test/verify-email/([A-Za-z0-9_-]{43})\n`)

// letters are accounts whose mail ends in a list.
func letters(t *testing.T) (*db.DB, *account.Accounts, *[]account.Letter) {
	t.Helper()
	var sent []account.Letter
	d, a := open(t, account.Config{
		PublicURL: "http://muster.test",
		Post: func(_ context.Context, _ *db.Tx, l account.Letter) error {
			sent = append(sent, l)
			return nil
		},
	})
	return d, a, &sent
}

func secretIn(t *testing.T, l account.Letter) string {
	t.Helper()
	m := link.FindStringSubmatch(l.Body)
	if m == nil {
		t.Fatalf("no link in %q", l.Body)
	}
	return m[1]
}

func verify(ctx context.Context, a *account.Accounts, secret string) error {
	return a.Verifications.VerifyEmail(ctx, account.Principal{}, secret, password, "")
}

// A stranger signed up with Ada's address. The link alone, in a browser of hers, does not make the stranger's account a
// verified one; the stranger's own browser, or the password, does.
func TestALinkAloneVerifiesNoStrangersAccount(t *testing.T) {
	t.Parallel()
	_, a, sent := letters(t)
	p, other := register(t, a, "ada@example.com"), register(t, a, "bob@example.com")
	secret := secretIn(t, (*sent)[0])
	for what, x := range map[string]struct {
		who      account.Principal
		password string
	}{
		"no session":           {},
		"a session of another": {who: other},
		"a wrong password":     {password: "not the password"},
		"a long one":           {password: strings.Repeat("x", 10_000)},
	} {
		err := a.Verifications.VerifyEmail(t.Context(), x.who, secret, x.password, "")
		if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Fields[0].Location != "password" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if v, err := a.Profile(t.Context(), p); err != nil || v.Verified {
		t.Fatal("verified by the link alone", err)
	}
	if err := a.Verifications.VerifyEmail(t.Context(), p, secret, "", ""); err != nil {
		t.Fatal(err)
	}
	if v, err := a.Profile(t.Context(), p); err != nil || !v.Verified {
		t.Fatal(v, err)
	}
}

func TestPasswordsOfLinksAreGuessedAFewTimes(t *testing.T) {
	t.Parallel()
	_, a, sent := letters(t)
	register(t, a, "ada@example.com")
	secret := secretIn(t, (*sent)[0])
	for range 10 {
		if err := a.Verifications.VerifyEmail(t.Context(), account.Principal{}, secret, "not the password",
			""); !fault.Is(err,
			fault.Invalid) {
			t.Fatal(err)
		}
	}
	if err := verify(t.Context(), a, secret); !fault.Is(err, fault.RateLimited) {
		t.Errorf("the eleventh attempt: %v", err)
	}
}

// Who signs up with a taken address learns so, a few times an hour, and the owner gets a mail, once a day.
func TestASignUpWithATakenAddressIsKnownToItsOwner(t *testing.T) {
	t.Parallel()
	_, a, sent := letters(t)
	for n := range 8 {
		register(t, a, fmt.Sprintf("u%d@example.com", n))
	}
	*sent = nil
	try := func(email, from string) error {
		_, _, err := a.SignUps.SignUp(t.Context(), account.SignUp{Email: email, Password: password, Address: from},
			idem.Request{})
		return err
	}
	for n := range 5 {
		if err := try(fmt.Sprintf("u%d@example.com", n/2), "198.51.100.1"); !fault.Is(err, fault.Conflict) {
			t.Fatal(err)
		}
	}
	if len(*sent) != 3 || (*sent)[0].To != "u0@example.com" || !strings.Contains((*sent)[0].Subject, "already") {
		t.Errorf("%d mails: %+v", len(*sent), *sent)
	}
	for _, email := range []string{"u7@example.com", "free@example.com"} { // the answer no longer depends on the address
		err := try(email, "198.51.100.1")
		if f := fault.From(err); f == nil || f.Kind != fault.RateLimited || f.RetryAfter <= 0 {
			t.Errorf("%s: %v", email, err)
		}
	}
	if err := try("free@example.com", "198.51.100.2"); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
}

func resend(ctx context.Context, a *account.Accounts, p account.Principal) error {
	_, _, err := a.Verifications.Send(ctx, p, idem.Request{})
	return err
}

func TestALinkProvesAnAddressOnce(t *testing.T) {
	t.Parallel()
	d, a, sent := letters(t)
	p, other := register(t, a, "ada@example.com"), register(t, a, "bob@example.com")
	if len(*sent) != 2 || (*sent)[0].To != "ada@example.com" || (*sent)[0].User != p.User {
		t.Fatalf("%+v", *sent)
	}
	first := secretIn(t, (*sent)[0])
	for _, bad := range []string{"", "x", first[1:] + "A", first + "A"} {
		if err := verify(t.Context(), a, bad); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if v, err := a.Profile(t.Context(), p); err != nil || v.Verified {
		t.Fatal(v, err)
	}
	if err := resend(t.Context(), a, p); err != nil {
		t.Fatal(err)
	}
	second := secretIn(t, (*sent)[2])
	if err := verify(t.Context(), a, first); err != nil {
		t.Fatal(err)
	}
	if v, err := a.Profile(t.Context(), p); err != nil || !v.Verified {
		t.Fatal(v, err)
	}
	if v, err := a.Profile(t.Context(), other); err != nil || v.Verified {
		t.Fatal("another user was verified", err)
	}
	if err := verify(t.Context(), a, first); !fault.Is(err, fault.NotFound) {
		t.Errorf("used twice: %v", err)
	}
	if err := verify(t.Context(), a, second); err != nil {
		t.Errorf("the other link, which was not used: %v", err)
	}
	if err := resend(t.Context(), a, p); !fault.Is(err, fault.Conflict) {
		t.Errorf("sent to a verified address: %v", err)
	}
	var kept int
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM email_verification WHERE encode(secret_hash, "+
		"'escape') LIKE '%' || $1 || '%'", first).Scan(&kept); err != nil || kept != 0 {
		t.Error("the secret is kept", err)
	}
}

func TestALinkGrowsOldAndIsForItsAddress(t *testing.T) {
	t.Parallel()
	d, a, sent := letters(t)
	p := register(t, a, "ada@example.com")
	old := secretIn(t, (*sent)[0])
	if _, err := d.Pool.Exec(t.Context(), "UPDATE email_verification SET expires_at = clock_timestamp()"); err != nil {
		t.Fatal(err)
	}
	if err := verify(t.Context(), a, old); !fault.Is(err, fault.NotFound) {
		t.Errorf("too old: %v", err)
	}
	if err := resend(t.Context(), a, p); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE app_user SET email = 'new@example.com' WHERE id = $1",
		p.User); err != nil {
		t.Fatal(err)
	}
	if err := verify(t.Context(), a, secretIn(t, (*sent)[1])); !fault.Is(err, fault.NotFound) {
		t.Errorf("another address: %v", err)
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE email_verification SET expires_at = clock_timestamp() - interval '8 "+
		"days'"); err != nil {
		t.Fatal(err)
	}
	if s, err := a.Sweep(t.Context()); err != nil || s.Links != 2 {
		t.Error(s, err)
	}
}

func TestLinksAreSentAFewTimesADay(t *testing.T) {
	t.Parallel()
	d, a, sent := letters(t)
	p, other := register(t, a, "ada@example.com"), register(t, a, "bob@example.com")
	for range 5 {
		if err := resend(t.Context(), a, p); err != nil {
			t.Fatal(err)
		}
	}
	n := len(*sent)
	err := resend(t.Context(), a, p)
	if f := fault.From(err); f == nil || f.Kind != fault.RateLimited || f.RetryAfter <= 0 || len(*sent) != n {
		t.Fatal(err)
	}
	if err := resend(t.Context(), a, other); err != nil {
		t.Fatal(err)
	}
	quiet := account.New(d, account.Config{})
	if err := resend(t.Context(), quiet, other); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
}
