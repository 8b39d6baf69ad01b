package client

import (
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

// Membership is an org of the caller.
type Membership struct {
	Org   Org       `json:"org"`
	Role  string    `json:"role" enum:"owner,admin,member,operator,billing,viewer"`
	Since time.Time `json:"since" doc:"when the caller joined"`
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

// InvitationAnswer is what became of an invitation.
type InvitationAnswer struct {
	Accepted bool `json:"accepted"`
}

// ChangeMemberRequest is the body of ChangeMember.
type ChangeMemberRequest struct {
	Role string `json:"role" doc:"what the member may do from now on" enum:"owner,admin,member,operator,billing,viewer"`
}

// CreateInvitationRequest is the body of CreateInvitation.
type CreateInvitationRequest struct {
	Email string `json:"email" doc:"whom to invite; the answer does not show whether the address has an account"`
	Role  string `json:"role" doc:"what the member will be able to do" enum:"owner,admin,member,operator,billing,viewer"`
}
