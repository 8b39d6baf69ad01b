package api

import (
	"context"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// orgAPI answers the routes of an organisation: members, invitations, legal details, time zone, audit log.
type orgAPI struct {
	accounts *account.Accounts
}

// whole is a list that has one page.
func whole[R, T any](rows []R, view func(R) T) list[T] {
	return cut(rows, len(rows), view, func(R) string { return "" })
}

func viewMember(m account.Member) client.OrgMember {
	return client.OrgMember{ID: m.User, Email: m.Email, Name: m.Name, Role: string(m.Role), Since: m.Since.UTC()}
}

func (a orgAPI) listMembers(ctx context.Context, p account.Principal, _ *struct{}) (list[client.OrgMember], error) {
	all, err := a.accounts.Members.List(ctx, p)
	return whole(all, viewMember), err
}

func (a orgAPI) changeMember(ctx context.Context, p account.Principal,
	in *change[id.User, client.ChangeMemberRequest]) (client.OrgMember, error) {
	if err := a.accounts.Members.ChangeRole(ctx, p, in.ID, account.Role(in.Body.Role)); err != nil {
		return client.OrgMember{}, err
	}
	all, err := a.accounts.Members.List(ctx, p)
	if err != nil {
		return client.OrgMember{}, err
	}
	i := slices.IndexFunc(all, func(m account.Member) bool { return m.User == in.ID })
	if i < 0 { // left meanwhile
		return client.OrgMember{}, fault.New(fault.NotFound, "member not found")
	}
	return viewMember(all[i]), nil
}

func (a orgAPI) removeMember(ctx context.Context, p account.Principal, in *of[id.User]) (nothing, error) {
	return nothing{}, a.accounts.Members.Remove(ctx, p, in.ID)
}

func (a orgAPI) leaveOrg(ctx context.Context, p account.Principal, _ *struct{}) (nothing, error) {
	return nothing{}, a.accounts.Members.Leave(ctx, p)
}

func (a orgAPI) listMyOrgs(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Membership], error) {
	if err := wholeUser(p); err != nil {
		return list[client.Membership]{}, err
	}
	all, err := a.accounts.Members.Memberships(ctx, p)
	return whole(all, func(m account.Membership) client.Membership {
		return client.Membership{
			Org:   client.Org{ID: m.Org, Name: m.Name, Personal: m.Personal, Zone: m.Zone},
			Role:  string(m.Role),
			Since: m.Since.UTC(),
		}
	}), err
}

func viewInvitation(v account.Invitation) client.Invitation {
	return client.Invitation{ID: v.ID, OrgID: v.Org, OrgName: v.OrgName, Email: v.Email, Role: string(v.Role),
		Inviter: v.Inviter, ExpiresAt: v.ExpiresAt.UTC()}
}

func (a orgAPI) listInvitations(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Invitation],
	error) {
	all, err := a.accounts.Invitations.List(ctx, p)
	return whole(all, viewInvitation), err
}

func (a orgAPI) createInvitation(ctx context.Context, p account.Principal, in *create[client.CreateInvitationRequest],
	once idem.Request) (client.Invitation, idem.Outcome, error) {
	v, out, err := a.accounts.Invitations.Invite(ctx, p, in.Body.Email, account.Role(in.Body.Role), idem.As(once,
		viewInvitation))
	return viewInvitation(v), out, err
}

func (a orgAPI) withdrawInvitation(ctx context.Context, p account.Principal, in *of[id.Invitation]) (nothing, error) {
	return nothing{}, a.accounts.Invitations.Withdraw(ctx, p, in.ID)
}

func (a orgAPI) listMyInvitations(ctx context.Context, p account.Principal, _ *struct{}) (list[client.Invitation],
	error) {
	if err := wholeUser(p); err != nil {
		return list[client.Invitation]{}, err
	}
	all, err := a.accounts.Invitations.To(ctx, p)
	return whole(all, viewInvitation), err
}

type answerInput struct {
	Keyed
	ID id.Invitation `path:"id"`
}

func (a orgAPI) acceptInvitation(ctx context.Context, p account.Principal, in *answerInput,
	once idem.Request) (client.InvitationAnswer, idem.Outcome, error) {
	accepted := client.InvitationAnswer{Accepted: true}
	_, out, err := a.accounts.Invitations.Accept(ctx, p, in.ID, idem.As(once,
		func(bool) client.InvitationAnswer { return accepted }))
	return accepted, out, err
}

func (a orgAPI) declineInvitation(ctx context.Context, p account.Principal, in *of[id.Invitation]) (nothing, error) {
	return nothing{}, a.accounts.Invitations.Decline(ctx, p, in.ID)
}
