package account

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// MaxMembers is how many members an org may have.
const MaxMembers = 200

// Members lists and changes the members of orgs.
type Members struct{ *core }

// Member is a user with a role in an org.
type Member struct {
	User        id.User
	Email, Name string
	Role        Role
	Since       time.Time
}

// List lists the members of the principal's org, the first one first.
func (m *Members) List(ctx context.Context, p Principal) ([]Member, error) {
	rows, err := m.db.Q.ListMembers(ctx, p.Org)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	out := make([]Member, len(rows))
	for i, r := range rows {
		out[i] = Member{r.UserID, r.Email, r.Name, Role(r.Role), r.CreatedAt}
	}
	return out, nil
}

// Membership is an org of a user.
type Membership struct {
	Org      id.Org
	Name     string
	Personal bool
	Zone     string
	Role     Role
	Since    time.Time
}

// Memberships lists the orgs of the principal's user, the personal one first.
func (m *Members) Memberships(ctx context.Context, p Principal) ([]Membership, error) {
	rows, err := m.db.Q.MembershipsOfUser(ctx, p.User)
	if err != nil {
		return nil, fmt.Errorf("list memberships: %w", err)
	}
	out := make([]Membership, len(rows))
	for i, r := range rows {
		out[i] = Membership{r.ID, r.Name, r.Personal, r.Zone, Role(r.Role), r.CreatedAt}
	}
	return out, nil
}

// checkRole returns an Invalid fault unless the role exists.
func checkRole(r Role) error {
	if r.Scopes() == nil {
		return fault.InvalidField("role", "has to be owner, admin, member, operator, billing or viewer")
	}
	return nil
}

// mayHandle returns a Forbidden fault unless p, whose user has the role actor now, may give a role to a member or take
// it: p needs ScopeMembers and every scope of the role, and only owners handle owners. So a token cannot give its
// holder's friends more than it has.
func mayHandle(p Principal, actor, role Role) error {
	may := scopesNow(actor, false, p.Scopes)
	if !slices.Contains(may, ScopeMembers) {
		return fault.New(fault.Forbidden, "your role, %s, does not include members", actor)
	}
	if role == RoleOwner && actor != RoleOwner {
		return fault.New(fault.Forbidden, "only an owner may make, change or remove an owner")
	}
	for _, s := range role.Scopes() {
		if !slices.Contains(may, s) {
			return fault.New(fault.Forbidden, "the role %s has the scope %q, which you do not have", role, s)
		}
	}
	return nil
}

// lockMembers locks the org's members until tx ends, and returns the org's name and the present roles of the principal
// and of a user. Faults: Forbidden (the principal is no longer a member), NotFound (the user is no member).
func lockMembers(ctx context.Context, tx *db.Tx, p Principal, user id.User) (org string, actor, role Role, err error) {
	if org, err = tx.Q.LockOrg(ctx, p.Org); err != nil {
		return "", "", "", fmt.Errorf("lock org %s: %w", p.Org, err)
	}
	mine, err := tx.Q.MemberRole(ctx, p.Org, p.User)
	if db.NoRows(err) {
		return "", "", "", fault.New(fault.Forbidden, "you are no longer a member of the organisation")
	}
	if err != nil {
		return "", "", "", fmt.Errorf("read the role of %s: %w", p.User, err)
	}
	theirs, err := tx.Q.MemberRole(ctx, p.Org, user)
	if db.NoRows(err) {
		return "", "", "", fault.New(fault.NotFound, "member not found")
	}
	if err != nil {
		return "", "", "", fmt.Errorf("read the role of %s: %w", user, err)
	}
	return org, Role(mine), Role(theirs), nil
}

// keepAnOwner returns a Conflict fault if a member who is an owner is the only one.
func keepAnOwner(ctx context.Context, tx *db.Tx, org id.Org, role Role) error {
	if role != RoleOwner {
		return nil
	}
	n, err := tx.Q.CountMembers(ctx, org)
	if err != nil {
		return fmt.Errorf("count members: %w", err)
	}
	if n.Owners < 2 {
		return fault.New(fault.Conflict, "the organisation needs an owner: make another member an owner first")
	}
	return nil
}

// ChangeRole gives a member of the principal's org another role. Rights that the new role lacks end at once: the
// member's tokens with them, their SSH keys' and streams' access, and the invitations that they sent. The same role
// again changes nothing. Faults: Invalid, NotFound, Forbidden, Conflict (the last owner).
func (m *Members) ChangeRole(ctx context.Context, p Principal, user id.User, role Role) error {
	if err := checkRole(role); err != nil {
		return err
	}
	return m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		org, actor, was, err := lockMembers(ctx, tx, p, user)
		if err != nil {
			return err
		}
		for _, r := range []Role{was, role} {
			if err := mayHandle(p, actor, r); err != nil {
				return err
			}
		}
		if was == role {
			return nil
		}
		if err := keepAnOwner(ctx, tx, p.Org, was); err != nil {
			return err
		}
		if err := tx.Q.SetMemberRole(ctx, string(role), p.Org, user); err != nil {
			return fmt.Errorf("set role: %w", err)
		}
		detail := map[string]any{"role": string(role), "was": string(was)}
		if slices.ContainsFunc(was.Scopes(), func(s string) bool { return !role.Can(s) }) || was == RoleOwner {
			if err := m.endRights(ctx, tx, p.Org, user, role, detail); err != nil {
				return err
			}
		}
		if err := audit.Record(ctx, tx, p.Event("member.role", user.String(), detail)); err != nil {
			return err
		}
		return m.mailMember(ctx, tx, p, user, "Your role has changed",
			fmt.Sprintf("%s changed your role in the organisation %q from %s to %s.", p.Email, org, was, role))
	})
}

// Remove removes a member from the principal's org. Their tokens, SSH keys and sessions of the org end at once,
// and the invitations that they sent. A user's last org is followed by a new one of their own. Faults: NotFound,
// Forbidden, Conflict (the last owner, or yourself: see Leave).
func (m *Members) Remove(ctx context.Context, p Principal, user id.User) error {
	if user == p.User {
		return fault.New(fault.Conflict, "you cannot remove yourself: leave the organisation instead")
	}
	return m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		org, actor, role, err := lockLeaving(ctx, tx, p, user)
		if err != nil {
			return err
		}
		if err := mayHandle(p, actor, role); err != nil {
			return err
		}
		detail := map[string]any{"role": string(role)}
		if err := m.endMembership(ctx, tx, p.Org, user, role, detail); err != nil {
			return err
		}
		if err := audit.Record(ctx, tx, p.Event("member.remove", user.String(), detail)); err != nil {
			return err
		}
		return m.mailMember(ctx, tx, p, user, "You were removed from an organisation",
			fmt.Sprintf("%s removed you from the organisation %q. Your API tokens and SSH keys there have ended.", p.Email, org))
	})
}

// Leave ends the principal's own membership of its org, with the token or session that calls it. Faults: Forbidden (a
// token that cannot do all that its user can), Conflict (the last owner; the only org).
func (m *Members) Leave(ctx context.Context, p Principal) error {
	if !p.Whole() {
		return fault.New(fault.Forbidden, "this token cannot do all that you can: sign in to leave the organisation")
	}
	return m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, _, role, err := lockLeaving(ctx, tx, p, p.User)
		if err != nil {
			return err
		}
		all, err := tx.Q.MembershipsOfUser(ctx, p.User)
		if err != nil {
			return fmt.Errorf("list memberships: %w", err)
		}
		if len(all) < 2 {
			return fault.New(fault.Conflict, "this is your only organisation: delete your account instead")
		}
		detail := map[string]any{"role": string(role)}
		if err := m.endMembership(ctx, tx, p.Org, p.User, role, detail); err != nil {
			return err
		}
		return audit.Record(ctx, tx, p.Event("member.leave", p.User.String(), detail))
	})
}

// lockLeaving is lockMembers for a member who may go: it locks the user first, so that two orgs that remove their last
// two memberships at the same time do so one after the other.
func lockLeaving(ctx context.Context, tx *db.Tx, p Principal, user id.User) (org string, actor, role Role,
	err error) {
	if _, err := tx.Q.LockUser(ctx, user); err != nil && !db.NoRows(err) {
		return "", "", "", fmt.Errorf("lock user %s: %w", user, err)
	}
	return lockMembers(ctx, tx, p, user)
}

// endMembership removes a member and everything that gives them access to the org, and adds what it did to detail.
func (m *Members) endMembership(ctx context.Context, tx *db.Tx, org id.Org, user id.User, role Role,
	detail map[string]any) error {
	if err := keepAnOwner(ctx, tx, org, role); err != nil {
		return err
	}
	if err := tx.Q.DeleteMembership(ctx, org, user); err != nil {
		return fmt.Errorf("delete membership: %w", err)
	}
	if err := m.endRights(ctx, tx, org, user, "", detail); err != nil {
		return err
	}
	sessions, err := tx.Q.DeleteSessionsOfMember(ctx, org, user)
	if err != nil {
		return fmt.Errorf("delete sessions: %w", err)
	}
	keys, err := tx.Q.DeleteSSHKeysOfMember(ctx, org, user)
	if err != nil {
		return fmt.Errorf("delete SSH keys: %w", err)
	}
	detail["sessions"], detail["ssh_keys"] = sessions, keys
	return ensureOrg(ctx, tx, user)
}

// endRights ends what gives a member more than the role has ("": they were removed): tokens with other scopes and those
// made with them, invitations, and what Config.RightsLost ends.
func (m *Members) endRights(ctx context.Context, tx *db.Tx, org id.Org, user id.User, role Role,
	detail map[string]any) error {
	rows, err := tx.Q.TokensOfMember(ctx, org, user)
	if err != nil {
		return fmt.Errorf("find tokens: %w", err)
	}
	var beyond []id.Token
	for _, t := range rows {
		lost := func(s string) bool { return s != ScopeAdmin && !role.Can(s) }
		if role == "" || slices.ContainsFunc(t.Scopes, lost) {
			beyond = append(beyond, t.ID)
		}
	}
	revoked, err := revokeTokens(ctx, tx, beyond...)
	if err != nil {
		return err
	}
	withdrawn, err := tx.Q.WithdrawInvitationsBy(ctx, org, user)
	if err != nil {
		return fmt.Errorf("withdraw invitations: %w", err)
	}
	detail["tokens_revoked"], detail["invitations_withdrawn"] = revoked, withdrawn
	if m.cfg.RightsLost == nil {
		return nil
	}
	return m.cfg.RightsLost(ctx, tx, org, user)
}

// ensureOrg makes a personal org for a user who is in none: without one they could not sign in.
func ensureOrg(ctx context.Context, tx *db.Tx, user id.User) error {
	_, err := tx.Q.HomeOrg(ctx, user)
	if err == nil || !db.NoRows(err) {
		return err
	}
	name, err := tx.Q.UserName(ctx, user)
	if err != nil {
		return fmt.Errorf("read user %s: %w", user, err)
	}
	org := id.New[id.Org]()
	if err := tx.Q.InsertOrg(ctx, org, name, true); err != nil {
		return fmt.Errorf("insert org: %w", err)
	}
	if err := tx.Q.InsertMembership(ctx, org, user, string(RoleOwner)); err != nil {
		return fmt.Errorf("insert membership: %w", err)
	}
	return nil
}

// mailMember mails a user about a change that someone else made to their membership; nothing to oneself, nor where no
// mail goes out.
func (m *Members) mailMember(ctx context.Context, tx *db.Tx, p Principal, user id.User, subject, text string) error {
	if m.cfg.Post == nil || user == p.User {
		return nil
	}
	to, err := tx.Q.UserEmail(ctx, user)
	if err != nil {
		return fmt.Errorf("read user %s: %w", user, err)
	}
	return m.cfg.Post(ctx, tx, Letter{User: user, To: to, Subject: subject,
		Body: text + "\n\nYour organisations: " + m.cfg.PublicURL + "/account\n"})
}

// SwitchOrg puts the principal's session into another org of its user. Faults: NotFound (not a member), Conflict (a
// token, which is always of one org).
func (m *Members) SwitchOrg(ctx context.Context, p Principal, org id.Org) error {
	if p.Session.IsZero() {
		return fault.New(fault.Conflict, "an API token belongs to one organisation: create one in the other")
	}
	return m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Q.SwitchSession(ctx, org, p.Session, p.User)
		if err != nil {
			return fmt.Errorf("switch session: %w", err)
		}
		if n == 0 {
			return fault.New(fault.NotFound, "you are not a member of such an organisation")
		}
		e := p.Event("session.switch", p.Session.String(), nil)
		e.Org = org
		return audit.Record(ctx, tx, e)
	})
}
