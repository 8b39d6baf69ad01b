package client

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// OrgMember is a user with a role in the org.
type OrgMember struct {
	ID    id.User   `json:"id"`
	Email string    `json:"email"`
	Name  string    `json:"name"`
	Role  string    `json:"role" doc:"what the member may do" enum:"owner,admin,member,operator,billing,viewer"`
	Since time.Time `json:"since" doc:"when the member joined"`
}

// Members lists the members of the org, the first one first.
func (c *Client) Members(ctx context.Context) (Page[OrgMember], error) {
	return get[Page[OrgMember]](ctx, c, "/members", nil)
}

// ChangeRole gives a member another role.
func (c *Client) ChangeRole(ctx context.Context, user id.User, role string) (OrgMember, error) {
	var out OrgMember
	err := c.call(ctx, http.MethodPatch, "/members/"+user.String(), nil, map[string]string{"role": role}, &out)
	return out, err
}

// RemoveMember removes a member from the org.
func (c *Client) RemoveMember(ctx context.Context, user id.User) error {
	return c.remove(ctx, "/members/"+user.String(), nil)
}

// LeaveOrg ends the caller's membership of the org, and with it the token that calls.
func (c *Client) LeaveOrg(ctx context.Context) error { return c.remove(ctx, "/me/membership", nil) }

// Membership is an org of the caller.
type Membership struct {
	Org   Org       `json:"org"`
	Role  string    `json:"role" enum:"owner,admin,member,operator,billing,viewer"`
	Since time.Time `json:"since" doc:"when the caller joined"`
}

// MyOrgs lists the orgs of the caller's user. It needs a token with all scopes of the caller's role.
func (c *Client) MyOrgs(ctx context.Context) (Page[Membership], error) {
	return get[Page[Membership]](ctx, c, "/me/orgs", nil)
}

// Invitation is an offer to an e-mail address to become a member of an org.
type Invitation struct {
	ID        id.Invitation `json:"id"`
	OrgID     id.Org        `json:"org_id"`
	OrgName   string        `json:"org_name"`
	Email     string        `json:"email" doc:"whom it is for"`
	Role      string        `json:"role" enum:"owner,admin,member,operator,billing,viewer"`
	Inviter   string        `json:"inviter" doc:"e-mail address of who sent it"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// Invite sends an invitation to the org. A second one to the same address replaces the first.
func (c *Client) Invite(ctx context.Context, email, role string) (Invitation, error) {
	return post[Invitation](ctx, c, "/invitations", map[string]string{"email": email, "role": role})
}

// Invitations lists the org's open invitations, newest first.
func (c *Client) Invitations(ctx context.Context) (Page[Invitation], error) {
	return get[Page[Invitation]](ctx, c, "/invitations", nil)
}

// WithdrawInvitation ends an open invitation of the org.
func (c *Client) WithdrawInvitation(ctx context.Context, v id.Invitation) error {
	return c.remove(ctx, "/invitations/"+v.String(), nil)
}

// MyInvitations lists open invitations to the caller's verified e-mail address.
func (c *Client) MyInvitations(ctx context.Context) (Page[Invitation], error) {
	return get[Page[Invitation]](ctx, c, "/me/invitations", nil)
}

// InvitationAnswer is what became of an invitation.
type InvitationAnswer struct {
	Accepted bool `json:"accepted"`
}

// AcceptInvitation makes the caller a member of the org that sent the invitation.
func (c *Client) AcceptInvitation(ctx context.Context, v id.Invitation) error {
	_, err := post[InvitationAnswer](ctx, c, "/me/invitations/"+v.String()+"/accept", struct{}{})
	return err
}

// DeclineInvitation ends an invitation to the caller.
func (c *Client) DeclineInvitation(ctx context.Context, v id.Invitation) error {
	return c.remove(ctx, "/me/invitations/"+v.String(), nil)
}
