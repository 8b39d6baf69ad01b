package account_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
)

func TestEmailChange(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	eve := x.person("eve")
	begin := func(to string) string {
		t.Helper()
		if err := x.a.EmailChanges.Begin(t.Context(), x.ada, to, password); err != nil {
			t.Fatal(err)
		}
		l := (*x.sent)[len(*x.sent)-1]
		if l.To != to {
			t.Fatalf("%+v", l)
		}
		_, rest, _ := strings.Cut(l.Body, "/change-email/")
		secret, _, _ := strings.Cut(rest, "\n")
		return secret
	}
	if err := x.a.EmailChanges.Begin(t.Context(), x.ada, "new@example.com", "not the password"); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("a wrong password: %v", err)
	}
	taken := begin("eve@example.com") // the answer does not show that it is taken
	if err := x.a.EmailChanges.Confirm(t.Context(), x.ada, taken); !fault.Is(err, fault.Conflict) {
		t.Errorf("an address of another account: %v", err)
	}
	first, secret := begin("first@example.com"), begin("new@example.com")
	if err := x.a.EmailChanges.Confirm(t.Context(), eve, secret); !fault.Is(err, fault.NotFound) {
		t.Errorf("by another account: %v", err)
	}
	if err := x.a.EmailChanges.Confirm(t.Context(), x.ada, secret); err != nil {
		t.Fatal(err)
	}
	if l := (*x.sent)[len(*x.sent)-1]; l.To != "ada@example.com" || l.Subject != "Your e-mail address was changed" {
		t.Errorf("%+v", l)
	}
	for _, s := range []string{secret, first} {
		if err := x.a.EmailChanges.Confirm(t.Context(), x.ada, s); !fault.Is(err, fault.NotFound) {
			t.Errorf("a second link: %v", err)
		}
	}
	if _, _, err := x.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "new@example.com",
		Password: password}); err != nil {
		t.Error(err)
	}
	if _, _, err := x.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "ada@example.com",
		Password: password}); err == nil {
		t.Error("the old address still signs in")
	}
}
