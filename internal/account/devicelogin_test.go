package account_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
)

func (x team) begin() account.DeviceLogin {
	x.t.Helper()
	l, _, err := x.a.DeviceLogins.Begin(x.t.Context(), "ada@laptop", "192.0.2.9", idem.Request{})
	if err != nil {
		x.t.Fatal(err)
	}
	return l
}

func (x team) poll(l account.DeviceLogin) account.DeviceAnswer {
	x.t.Helper()
	r, _, err := x.a.DeviceLogins.Poll(x.t.Context(), l.DeviceCode, "192.0.2.9", idem.Request{})
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

func TestDeviceLogin_IsGrantedOnce(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	ada := x.inAdasOrg("ada")
	l := x.begin()
	if r := x.poll(l); r.Status != account.DevicePending || r.Token != "" {
		t.Fatalf("%+v", r)
	}
	if r := x.poll(l); r.Status != account.DeviceSlow {
		t.Errorf("a second poll at once: %+v", r)
	}
	token, _ := issue(t, x.a, ada, account.NewToken{Scopes: account.Scopes()})
	if err := x.a.DeviceLogins.Answer(t.Context(), token, l.UserCode, []string{"read"}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("by a token: %v", err)
	}
	if err := x.a.DeviceLogins.Answer(t.Context(), ada, l.UserCode, []string{"admin"}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a scope that Ada lacks: %v", err)
	}
	if err := x.a.DeviceLogins.Answer(t.Context(), ada, l.UserCode, []string{"read", "clusters"}); err != nil {
		t.Fatal(err)
	}
	if err := x.a.DeviceLogins.Answer(t.Context(), ada, l.UserCode, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("answered again: %v", err)
	}
	r := x.poll(l)
	p, err := x.a.Tokens.Principal(t.Context(), r.Token)
	if r.Status != account.DeviceGranted || err != nil || p.User != ada.User || p.Can(account.ScopeBilling) {
		t.Errorf("%+v %+v %v", r, p, err)
	}
	if r := x.poll(l); r.Status != account.DeviceExpired {
		t.Errorf("the token again: %+v", r)
	}
}

// What was granted is worth nothing once the person has lost it, or has set a new password.
func TestDeviceLogin_EndsWithTheRights(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	bob := x.join("bob", account.RoleMember)
	for name, c := range map[string]struct {
		act  func() error
		want string
	}{
		"demoted": {func() error { return x.a.Members.ChangeRole(t.Context(), x.ada, bob.User, account.RoleViewer) },
			account.DeviceDenied},
		"a new password": {func() error {
			return x.a.Passwords.Change(t.Context(), bob, password, "a new horse battery", false)
		}, account.DeviceExpired},
	} {
		x.exec("UPDATE membership SET role = 'member' WHERE user_id = $1 AND org_id = $2", bob.User, bob.Org)
		l := x.begin()
		if err := x.a.DeviceLogins.Answer(t.Context(), bob, l.UserCode, []string{"clusters"}); err != nil {
			t.Fatal(err)
		}
		if err := c.act(); err != nil {
			t.Fatal(name, err)
		}
		if r := x.poll(l); r.Status != c.want || r.Token != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestDeviceLogin_Limits(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	ada := x.inAdasOrg("ada")
	for i := 0; ; i++ {
		_, err := x.a.DeviceLogins.ByCode(t.Context(), ada, "BBBB-BBBB")
		if fault.Is(err, fault.RateLimited) {
			break
		}
		if !fault.Is(err, fault.Invalid) || i > 20 {
			t.Fatal(i, err)
		}
	}
	for i := 0; ; i++ {
		_, _, err := x.a.DeviceLogins.Begin(t.Context(), "m", "192.0.2.9", idem.Request{})
		if fault.Is(err, fault.RateLimited) {
			break
		}
		if err != nil || i > 30 {
			t.Fatal(i, err)
		}
	}
	for _, machine := range []string{"", "two\nlines", "\u202egnp"} {
		if _, _, err := x.a.DeviceLogins.Begin(t.Context(), machine, "", idem.Request{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", machine, err)
		}
	}
	l := func() account.DeviceLogin {
		l, _, err := x.a.DeviceLogins.Begin(t.Context(), "m", "", idem.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}()
	if left := time.Until(l.ExpiresAt); left <= 0 || left > 11*time.Minute {
		t.Error(left)
	}
	x.exec("UPDATE device_login SET expires_at = now() - interval '1 second'")
	if r := x.poll(l); r.Status != account.DeviceExpired {
		t.Errorf("%+v", r)
	}
}
