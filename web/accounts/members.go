package accounts

import (
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// membersDone are the messages after a form of the members' page.
var membersDone = map[string]string{
	"invited":   "The invitation is on its way. It is good for 7 days.",
	"withdrawn": "The invitation is withdrawn.",
	"changed":   "The role is changed.",
	"removed":   "The member is removed.",
}

// memberPages are the members of an organisation, its invitations, and a person's organisations.
type memberPages struct {
	*page.Site
	signIn *signInPages
}

func (s *memberPages) members(v *page.Visit) error {
	return s.showMembers(v, Members{Role: string(account.RoleMember), Done: page.Done(v, membersDone)})
}

// showMembers renders the members' page; m carries what a form left.
func (s *memberPages) showMembers(v *page.Visit, m Members) error {
	ctx := v.R.Context()
	m.Org, m.Manage = v.Who.OrgName, v.Who.CanAny(account.WriteMembers...)
	all, err := s.Accounts.Members.List(ctx, v.Who)
	if err != nil {
		return err
	}
	for _, x := range all {
		m.Rows = append(m.Rows, MemberRow{
			ID: x.User.String(), Email: x.Email, Name: x.Name, Role: string(x.Role),
			Since: view.Clock(x.Since, s.Now()), Self: x.User == v.Who.User,
		})
	}
	for _, r := range account.Roles() {
		m.Roles = append(m.Roles, RoleRow{string(r), r.About()})
	}
	if m.Manage {
		open, err := s.Accounts.Invitations.List(ctx, v.Who)
		if err != nil {
			return err
		}
		m.Invitations = s.invitationRows(open)
	}
	return s.Render(v, MembersPage(v.Page("Members", ""), m))
}

func (s *memberPages) invitationRows(list []account.Invitation) []InvitationRow {
	out := make([]InvitationRow, len(list))
	for i, x := range list {
		out[i] = InvitationRow{
			ID: x.ID.String(), Email: x.Email, Org: x.OrgName, Role: string(x.Role), Inviter: x.Inviter,
			Until: view.Clock(x.ExpiresAt, s.Now()),
		}
	}
	return out
}

func (s *memberPages) invite(v *page.Visit) error {
	m := Members{Email: v.R.FormValue("email"), Role: v.R.FormValue("role")}
	_, _, err := s.Accounts.Invitations.Invite(v.R.Context(), v.Who, m.Email, account.Role(m.Role), idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			m.Errors = errs
			return s.showMembers(v, m)
		})
	}
	return page.Back(v, "/account/members?done=invited#invite")
}

func (s *memberPages) withdrawInvitation(v *page.Visit) error {
	x, err := id.Parse[id.Invitation](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "open invitation not found")
	}
	if err := s.Accounts.Invitations.Withdraw(v.R.Context(), v.Who, x); err != nil {
		return err
	}
	return page.Back(v, "/account/members?done=withdrawn#invite")
}

// onMember calls f with the member that the path names, and shows its faults above the list.
func (s *memberPages) onMember(v *page.Visit, done string, f func(id.User) error) error {
	user, err := id.Parse[id.User](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "member not found")
	}
	if err := f(user); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showMembers(v, Members{
				Role:   string(account.RoleMember),
				Errors: map[string]string{"member": page.First(errs, "role", "")},
			})
		})
	}
	return page.Back(v, "/account/members?done="+done)
}

func (s *memberPages) changeRole(v *page.Visit) error {
	return s.onMember(v, "changed", func(user id.User) error {
		return s.Accounts.Members.ChangeRole(v.R.Context(), v.Who, user, account.Role(v.R.FormValue("role")))
	})
}

func (s *memberPages) removeMember(v *page.Visit) error {
	return s.onMember(v, "removed", func(user id.User) error {
		return s.Accounts.Members.Remove(v.R.Context(), v.Who, user)
	})
}

// leaveOrg ends the session, too: it is of the organisation that the visitor leaves.
func (s *memberPages) leaveOrg(v *page.Visit) error {
	if err := s.Accounts.Members.Leave(v.R.Context(), v.Who); err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showMembers(v, Members{Errors: map[string]string{"member": page.First(errs, "")}})
		})
	}
	return s.signIn.signedOut(v)
}

func (s *memberPages) switchOrg(v *page.Visit) error {
	org, err := id.Parse[id.Org](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "you are not a member of such an organisation")
	}
	if err := s.Accounts.Members.SwitchOrg(v.R.Context(), v.Who, org); err != nil {
		return err
	}
	return page.Back(v, "/account")
}

// orgRows adds the visitor's organisations and the invitations to them to the account page.
func (s *memberPages) orgRows(v *page.Visit, a *Account) error {
	all, err := s.Accounts.Members.Memberships(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	for _, o := range all {
		a.Orgs = append(a.Orgs, OrgRow{o.Org.String(), o.Name, string(o.Role), o.Org == v.Who.Org})
	}
	open, err := s.Accounts.Invitations.To(v.R.Context(), v.Who)
	a.Invitations = s.invitationRows(open)
	return err
}

// invitationForm asks for a click: mail scanners open links, but do not submit forms.
func (s *memberPages) invitationForm(v *page.Visit) error {
	return s.showInvitation(v, chi.URLParam(v.R, "code"), "")
}

func (s *memberPages) showInvitation(v *page.Visit, code, refused string) error {
	x, err := s.Accounts.Invitations.ByLink(v.R.Context(), code)
	if err != nil {
		return err
	}
	return s.Render(v, InvitationPage(v.Page("Invitation", "signin"), Invited{
		Code: code, Org: x.OrgName, Role: string(x.Role), About: x.Role.About(), Inviter: x.Inviter,
		SignedIn: v.SignedIn(), Email: v.Who.Email, Error: refused,
	}))
}

// answerInvitation answers the invitation of a mailed link, or one that the account page lists. A session that accepts
// is in the organisation afterwards.
func (s *memberPages) answerInvitation(v *page.Visit) error {
	ctx, accept, code := v.R.Context(), v.R.FormValue("answer") == "accept", v.R.FormValue("code")
	if code != "" {
		org, err := s.Accounts.Invitations.AnswerByLink(ctx, v.Who, code, accept)
		if fault.Is(err, fault.NotFound) && !org.IsZero() {
			v.Status = fault.NotFound.HTTPStatus()
			return s.showInvitation(v, code, "This invitation was sent to another e-mail address than "+v.Who.Email+".")
		}
		if err == nil && accept {
			err = s.Accounts.Members.SwitchOrg(ctx, v.Who, org)
		}
		if err != nil {
			return err
		}
		return page.Back(v, "/account")
	}
	x, err := id.Parse[id.Invitation](v.R.FormValue("id"))
	if err != nil {
		return fault.New(fault.NotFound, "open invitation not found")
	}
	if !accept {
		err = s.Accounts.Invitations.Decline(ctx, v.Who, x)
	} else {
		_, _, err = s.Accounts.Invitations.Accept(ctx, v.Who, x, idem.Request{})
	}
	if err != nil {
		return err
	}
	return page.Back(v, "/account#orgs")
}
