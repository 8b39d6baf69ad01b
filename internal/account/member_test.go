package account_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const aliceKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"

var invitationLink = regexp.MustCompile(`http://muster\.test/invitations/([A-Za-z0-9_-]{43})\n`)

// team is an org with an owner, Ada, whose mails end in a list.
type team struct {
	t    *testing.T
	db   *db.DB
	a    *account.Accounts
	sent *[]account.Letter
	ada  account.Principal
}

func newTeam(t *testing.T) team {
	t.Helper()
	d, a, sent := letters(t)
	x := team{t, d, a, sent, account.Principal{}}
	x.ada = x.person("ada")
	return x
}

// person signs up with a verified address.
func (x team) person(name string) account.Principal {
	x.t.Helper()
	p := register(x.t, x.a, name+"@example.com")
	x.exec("UPDATE app_user SET email_verified_at = now() WHERE id = $1", p.User)
	return p
}

func (x team) exec(sql string, args ...any) {
	x.t.Helper()
	if _, err := x.db.Pool.Exec(x.t.Context(), sql, args...); err != nil {
		x.t.Fatal(err)
	}
}

func (x team) invite(p account.Principal, email string, role account.Role) (account.Invitation, error) {
	v, _, err := x.a.Invitations.Invite(x.t.Context(), p, email, role, idem.Request{})
	return v, err
}

// join makes a new person a member of Ada's org, and returns their session there.
func (x team) join(name string, role account.Role) account.Principal {
	x.t.Helper()
	p := x.person(name)
	v, err := x.invite(x.ada, p.Email, role)
	if err == nil {
		_, _, err = x.a.Invitations.Accept(x.t.Context(), p, v.ID, idem.Request{})
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return x.inAdasOrg(name)
}

// inAdasOrg signs a person in, and switches to Ada's org.
func (x team) inAdasOrg(name string) account.Principal {
	x.t.Helper()
	secret, p, err := x.a.Sessions.SignIn(x.t.Context(), account.SignIn{Email: name + "@example.com", Password: password})
	if err == nil {
		err = x.a.Members.SwitchOrg(x.t.Context(), p, x.ada.Org)
	}
	if err == nil {
		p, err = x.a.Sessions.Principal(x.t.Context(), secret)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

func (x team) roles() map[string]account.Role {
	x.t.Helper()
	all, err := x.a.Members.List(x.t.Context(), x.ada)
	if err != nil {
		x.t.Fatal(err)
	}
	out := map[string]account.Role{}
	for _, m := range all {
		name, _, _ := strings.Cut(m.Email, "@")
		out[name] = m.Role
	}
	return out
}

func TestInvite_ByMailThenAccept(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	v, err := x.invite(x.ada, " Bob@Example.com", account.RoleMember)
	if err != nil {
		t.Fatal(err)
	}
	mail := (*x.sent)[len(*x.sent)-1]
	m := invitationLink.FindStringSubmatch(mail.Body)
	if m == nil || mail.To != "bob@example.com" || v.Email != "bob@example.com" {
		t.Fatalf("%+v", mail)
	}
	bob := register(t, x.a, "bob@example.com") // not verified: the link shows that the mail is theirs
	org, err := x.a.Invitations.AnswerByLink(t.Context(), bob, m[1], true)
	if err != nil || org != x.ada.Org || x.roles()["bob"] != account.RoleMember {
		t.Fatal(org, err, x.roles())
	}
	if p, err := x.a.Profile(t.Context(), bob); err != nil || !p.Verified {
		t.Error("the link did not verify the address", err)
	}
	if _, err := x.a.Invitations.AnswerByLink(t.Context(), bob, m[1], true); !fault.Is(err, fault.NotFound) {
		t.Errorf("a second use: %v", err)
	}
	if last := (*x.sent)[len(*x.sent)-1]; last.To != "ada@example.com" || last.Subject != "Your invitation was accepted" {
		t.Errorf("%+v", last)
	}
	in := x.inAdasOrg("bob")
	if !slices.Equal(in.Scopes, []string{account.ScopeRead, account.ScopeClusters}) || in.Role != account.RoleMember {
		t.Errorf("%+v", in)
	}
	acts, err := audit.List(t.Context(), x.db.Q, x.ada.Org, id.Audit{}, 10)
	if err != nil || !slices.ContainsFunc(acts, func(e audit.Entry) bool { return e.Action == "member.join" }) {
		t.Error(acts, err)
	}
}

// An invitation can be answered only by the person who has the address, and shows itself to no one else.
func TestInvitation_IsForOneAddress(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	eve := x.person("eve")
	v, err := x.invite(x.ada, "bob@example.com", account.RoleAdmin)
	if err != nil {
		t.Fatal(err)
	}
	secret := invitationLink.FindStringSubmatch((*x.sent)[len(*x.sent)-1].Body)[1]
	if _, err := x.a.Invitations.AnswerByLink(t.Context(), eve, secret, true); !fault.Is(err, fault.NotFound) {
		t.Errorf("a forwarded link: %v", err)
	}
	stranger := register(t, x.a, "bob@example.com") // with Bob's address, which is not verified
	_, _, err = x.a.Invitations.Accept(t.Context(), stranger, v.ID, idem.Request{})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("by id, without reading the mail: %v", err)
	}
	if open, err := x.a.Invitations.To(t.Context(), stranger); err != nil || len(open) != 0 {
		t.Error("a stranger sees who invites Bob", open, err)
	}
	part, _ := issue(t, x.a, eve, account.NewToken{Scopes: []string{account.ScopeRead}})
	if err := x.a.Invitations.Decline(t.Context(), part, v.ID); !fault.Is(err, fault.Forbidden) {
		t.Errorf("by a token with fewer scopes: %v", err)
	}
	if err := x.a.Invitations.Withdraw(t.Context(), eve, v.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("withdrawn by another org: %v", err)
	}
	if err := x.a.Invitations.Withdraw(t.Context(), x.ada, v.ID); err != nil {
		t.Error(err)
	}
	if _, err := x.a.Invitations.ByLink(t.Context(), secret); !fault.Is(err, fault.NotFound) {
		t.Errorf("after it was withdrawn: %v", err)
	}
}

func TestInvite_Refusals(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	admin, billing := x.join("adam", account.RoleAdmin), x.join("bill", account.RoleBilling)
	unverified := register(t, x.a, "una@example.com")
	narrow, _ := issue(t, x.a, x.ada, account.NewToken{Scopes: []string{account.ScopeRead, account.ScopeMembers}})
	for name, c := range map[string]struct {
		by    account.Principal
		email string
		role  account.Role
		kind  fault.Kind
	}{
		"a member already":         {x.ada, "bill@example.com", account.RoleMember, fault.Conflict},
		"no such role":             {x.ada, "eve@example.com", "root", fault.Invalid},
		"no address":               {x.ada, "eve", account.RoleMember, fault.Invalid},
		"an admin makes an owner":  {admin, "eve@example.com", account.RoleOwner, fault.Forbidden},
		"without the scope":        {billing, "eve@example.com", account.RoleViewer, fault.Forbidden},
		"not verified":             {unverified, "eve@example.com", account.RoleViewer, fault.Forbidden},
		"more than the token has":  {narrow, "eve@example.com", account.RoleAdmin, fault.Forbidden},
		"more than the token has2": {narrow, "eve@example.com", account.RoleBilling, fault.Forbidden},
	} {
		if _, err := x.invite(c.by, c.email, c.role); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := x.invite(narrow, "eve@example.com", account.RoleViewer); err != nil {
		t.Error(err)
	}
}

// Rights that a role lost end at once: tokens beyond it and those made with them, SSH keys' access, invitations; a
// token within the role stays.
func TestChangeRole_EndsRightsAtOnce(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	bob := x.join("bob", account.RoleAdmin)
	root, all := issue(t, x.a, bob, account.NewToken{Scopes: account.Scopes()})
	_, child := issue(t, x.a, root, account.NewToken{Scopes: []string{account.ScopeRead}})
	_, reads := issue(t, x.a, bob, account.NewToken{Scopes: []string{account.ScopeRead}})
	key, _, err := x.a.SSHKeys.Add(t.Context(), bob, "k", aliceKey, idem.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.invite(bob, "second@example.com", account.RoleAdmin); err != nil { // Bob's own second address
		t.Fatal(err)
	}
	if err := x.a.Members.ChangeRole(t.Context(), x.ada, bob.User, account.RoleViewer); err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{"beyond the role": all, "made with it": child} {
		if _, err := x.a.Tokens.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	if p, err := x.a.Tokens.Principal(t.Context(), reads); err != nil || p.Role != account.RoleViewer {
		t.Errorf("a token within the role: %+v %v", p, err)
	}
	if _, err := x.a.SSHKeys.ByFingerprint(t.Context(), bob.Org, key.Fingerprint); !fault.Is(err, fault.NotFound) {
		t.Errorf("the SSH key still opens clusters: %v", err)
	}
	if open, err := x.a.Invitations.List(t.Context(), x.ada); err != nil || len(open) != 0 {
		t.Error("Bob's invitations are open", open, err)
	}
	// What a request that began before still holds in memory is of no use.
	if _, _, err := x.a.Tokens.Issue(t.Context(), bob, account.NewToken{Name: "late",
		Scopes: []string{account.ScopeClusters}}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a token by the role of a moment ago: %v", err)
	}
	if _, err := x.invite(bob, "third@example.com", account.RoleViewer); !fault.Is(err, fault.Forbidden) {
		t.Errorf("an invitation by the role of a moment ago: %v", err)
	}
	if err := x.a.Members.ChangeRole(t.Context(), bob, bob.User, account.RoleOwner); !fault.Is(err, fault.Forbidden) {
		t.Errorf("back by oneself: %v", err)
	}
}

// A stream that requires a scope ends when its user's role loses it; one that reads goes on.
func TestChangeRole_EndsOpenStreams(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	a := account.New(d, account.Config{RecheckEvery: 5 * time.Millisecond, PublicURL: "http://muster.test",
		HashMemoryKiB: cheapHash,
		Post:          func(context.Context, *db.Tx, account.Letter) error { return nil }})
	x := team{t, d, a, nil, account.Principal{}}
	x.ada = x.person("ada")
	bob := x.join("bob", account.RoleMember)
	shell, cancel := a.Credentials.WhileIn(t.Context(), bob.Credential(account.WriteClusters...))
	defer cancel()
	logs, cancel := a.Credentials.WhileIn(t.Context(), bob.Credential(account.ReadClusters...))
	defer cancel()
	if err := a.Members.ChangeRole(t.Context(), x.ada, bob.User, account.RoleBilling); err != nil {
		t.Fatal(err)
	}
	<-shell.Done()
	if in, err := a.Credentials.StillIn(t.Context(),
		bob.Credential(account.ReadClusters...)); err != nil || !in || logs.Err() != nil {
		t.Error("a stream that the new role may read ended", err)
	}
	if err := a.Members.Remove(t.Context(), x.ada, bob.User); err != nil {
		t.Fatal(err)
	}
	<-logs.Done()
}

func TestRemoveMember_EndsAllAccess(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	bob := x.join("bob", account.RoleMember)
	_, secret := issue(t, x.a, bob, account.NewToken{Scopes: []string{account.ScopeRead}})
	session, _, err := x.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "bob@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := x.a.SSHKeys.Add(t.Context(), bob, "k", aliceKey, idem.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.a.Members.Remove(t.Context(), bob, x.ada.User); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a member removes the owner: %v", err)
	}
	if err := x.a.Members.Remove(t.Context(), x.person("eve"), bob.User); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org removes the member: %v", err)
	}
	if err := x.a.Members.Remove(t.Context(), x.ada, bob.User); err != nil {
		t.Fatal(err)
	}
	if _, err := x.a.Tokens.Principal(t.Context(), secret); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("the token: %v", err)
	}
	if in, err := x.a.Credentials.StillIn(t.Context(), bob.Credential()); err != nil || in {
		t.Errorf("the session in the org: %v", err)
	}
	if _, err := x.a.SSHKeys.ByFingerprint(t.Context(), x.ada.Org, key.Fingerprint); !fault.Is(err, fault.NotFound) {
		t.Errorf("the SSH key: %v", err)
	}
	if p, err := x.a.Sessions.Principal(t.Context(), session); err != nil || p.Org == x.ada.Org {
		t.Errorf("the session in the person's own org ended: %+v %v", p, err)
	} else if err := x.a.Members.SwitchOrg(t.Context(), p, x.ada.Org); !fault.Is(err, fault.NotFound) {
		t.Errorf("it switches back: %v", err)
	}
	// A token that a row of the database names, but whose user is no longer a member.
	if err := x.a.Members.Remove(t.Context(), x.ada, bob.User); !fault.Is(err, fault.NotFound) {
		t.Errorf("again: %v", err)
	}
}

// Two owners who demote each other, or leave, at the same time leave one owner.
func TestTheLastOwnerStays(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(x team, ada, bob account.Principal) (a, b func() error){
		"demote each other": func(x team, ada, bob account.Principal) (a, b func() error) {
			demote := func(p, q account.Principal) func() error {
				return func() error { return x.a.Members.ChangeRole(x.t.Context(), p, q.User, account.RoleMember) }
			}
			return demote(ada, bob), demote(bob, ada)
		},
		"leave": func(x team, ada, bob account.Principal) (a, b func() error) {
			leave := func(p account.Principal) func() error {
				return func() error { return x.a.Members.Leave(x.t.Context(), p) }
			}
			return leave(ada), leave(bob)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTeam(t)
			if err := x.a.Members.Leave(t.Context(), x.ada); !fault.Is(err, fault.Conflict) {
				t.Fatalf("the only owner leaves: %v", err)
			}
			if err := x.a.Members.ChangeRole(t.Context(), x.ada, x.ada.User, account.RoleAdmin); !fault.Is(err, fault.Conflict) {
				t.Fatalf("the only owner becomes an admin: %v", err)
			}
			bob := x.join("bob", account.RoleOwner)
			x.exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'viewer')",
				x.person("eve").Org, x.ada.User) // where Ada can stay
			var g errgroup.Group
			a, b := act(x, x.ada, bob)
			refused := make(chan error, 2)
			for _, f := range []func() error{a, b} {
				g.Go(func() error {
					refused <- f()
					return nil
				})
			}
			_ = g.Wait()
			one, two := <-refused, <-refused
			if (one == nil) == (two == nil) {
				t.Errorf("%v, %v", one, two)
			}
			if err := errors.Join(one, two); !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Forbidden) {
				t.Error(err)
			}
			var owners int
			if err := x.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM membership WHERE org_id = $1 AND role = 'owner'",
				x.ada.Org).Scan(&owners); err != nil || owners != 1 {
				t.Error(owners, err)
			}
		})
	}
}

// Someone who is removed from the only org they have gets a new one: they can still sign in.
func TestRemoveMember_NobodyIsWithoutAnOrg(t *testing.T) {
	t.Parallel()
	x := newTeam(t)
	bob := x.join("bob", account.RoleOwner)
	x.exec("DELETE FROM session WHERE org_id <> $1", x.ada.Org)
	x.exec("DELETE FROM membership WHERE org_id <> $1", x.ada.Org)
	if err := x.a.Members.Leave(t.Context(), bob); !fault.Is(err, fault.Conflict) {
		t.Errorf("leaves the only org: %v", err)
	}
	if err := x.a.Members.Remove(t.Context(), x.ada, bob.User); err != nil {
		t.Fatal(err)
	}
	_, p, err := x.a.Sessions.SignIn(t.Context(), account.SignIn{Email: "bob@example.com", Password: password})
	if err != nil || p.Org == x.ada.Org || p.Role != account.RoleOwner {
		t.Errorf("%+v %v", p, err)
	}
}

// Owners can do everything; no one can do more than they; every role can read.
func TestPermissionTable(t *testing.T) {
	t.Parallel()
	all := account.Scopes()
	if !slices.Equal(account.RoleOwner.Scopes(), all) {
		t.Errorf("an owner has %v of %v", account.RoleOwner.Scopes(), all)
	}
	for _, r := range account.Roles() {
		if !r.Can(account.ScopeRead) || r.About() == "" {
			t.Errorf("%s cannot read or has no description", r)
		}
		for _, s := range r.Scopes() {
			if !slices.Contains(all, s) {
				t.Errorf("%s has the scope %s, which no token can have", r, s)
			}
		}
	}
	if account.Role("root").Scopes() != nil {
		t.Error("a role that does not exist has scopes")
	}
	if got := account.RolesThatCan(account.WriteHosts); got != "owner, admin or operator" {
		t.Error(got)
	}
}
