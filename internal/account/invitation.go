package account

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

const (
	invitationLife = 7 * 24 * time.Hour
	maxInvitations = 100 // open ones of an org
	inviteWindow   = 24 * time.Hour
	invitesPerOrg  = 50 // sent in a window
	invitesPerMail = 10 // sent to one address in a window, by all orgs; further ones are not mailed
)

// Invitations invites people to orgs.
type Invitations struct {
	*core
	members *Members
}

// Invitation is an offer to an e-mail address to become a member of an org. It ends when it is accepted, declined,
// withdrawn or a week old.
type Invitation struct {
	ID        id.Invitation
	Org       id.Org
	OrgName   string
	Email     string // whom it is for
	Role      Role
	Inviter   string // e-mail address of who sent it
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Invite sends an invitation to the principal's org. Another one to the same address replaces the first. The answer
// does not show whether the address has an account. Faults: Invalid, Forbidden (a role that you cannot give; your
// address is not verified), Conflict (a member already), QuotaExceeded, RateLimited, Unavailable (no mail goes out
// here).
func (in *Invitations) Invite(ctx context.Context, p Principal, email string, role Role, once idem.Request) (Invitation,
	idem.Outcome, error) {
	return idem.Once(ctx, in.db, once, func(ctx context.Context, tx *db.Tx) (Invitation, error) {
		return in.invite(ctx, tx, p, email, role)
	})
}

func (in *Invitations) invite(ctx context.Context, tx *db.Tx, p Principal, email string, role Role) (Invitation,
	error) {
	var bad fault.Fields
	to, err := normalEmail(email)
	for _, err := range []error{err, checkRole(role)} {
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
	}
	if err := bad.Err(); err != nil {
		return Invitation{}, err
	}
	if in.cfg.Post == nil {
		return Invitation{}, fault.New(fault.Unavailable, "this platform sends no mail: ask its operator")
	}
	org, actor, _, err := lockMembers(ctx, tx, p, p.User)
	if err != nil {
		return Invitation{}, err
	}
	if err := mayHandle(p, actor, role); err != nil {
		return Invitation{}, err
	}
	if err := mayInvite(ctx, tx, p, to); err != nil {
		return Invitation{}, err
	}
	if err := tx.Q.WithdrawInvitationsTo(ctx, p.Org, to); err != nil {
		return Invitation{}, fmt.Errorf("replace an invitation: %w", err)
	}
	secret := newSecret()
	v := Invitation{ID: id.New[id.Invitation](), Org: p.Org, OrgName: org, Email: to, Role: role, Inviter: p.Email}
	row, err := tx.Q.InsertInvitation(ctx, dbq.InsertInvitationParams{
		ID: v.ID, OrgID: p.Org, Email: to, Role: string(role), SecretHash: hashSecret(secret), CreatedBy: p.User,
		LifeS: invitationLife.Seconds(),
	})
	if err != nil {
		return Invitation{}, fmt.Errorf("insert invitation: %w", err)
	}
	v.CreatedAt, v.ExpiresAt = row.CreatedAt, row.ExpiresAt
	if err := in.mailInvitation(ctx, tx, p, v, secret); err != nil {
		return Invitation{}, err
	}
	// The audit log is not changed, so an address that may have to be erased is not in it.
	return v, audit.Record(ctx, tx, p.Event("invitation.send", v.ID.String(), map[string]any{"role": string(role)}))
}

// mayInvite holds an invitation to the limits: only verified people can have mail sent to others.
func mayInvite(ctx context.Context, tx *db.Tx, p Principal, to string) error {
	verified, err := tx.Q.EmailVerified(ctx, p.User)
	if err != nil {
		return fmt.Errorf("read user %s: %w", p.User, err)
	}
	if !verified {
		return fault.New(fault.Forbidden, "verify your own e-mail address before you invite others")
	}
	if _, err := tx.Q.MemberByEmail(ctx, p.Org, to); err == nil {
		f := fault.New(fault.Conflict, "this person is a member of the organisation")
		f.Fields = []fault.Field{{Location: "email", Message: "is a member of the organisation"}}
		return f
	} else if !db.NoRows(err) {
		return fmt.Errorf("find member: %w", err)
	}
	open, err := tx.Q.CountInvitations(ctx, p.Org)
	if err != nil {
		return fmt.Errorf("count invitations: %w", err)
	}
	if open >= maxInvitations {
		return fault.New(fault.QuotaExceeded, "your organisation has %d open invitations, the most there may be: withdraw "+
			"some first", maxInvitations)
	}
	return countAttempt(ctx, tx.Q, "invite:"+p.Org.String(), invitesPerOrg, inviteWindow)
}

// mailInvitation mails the link, unless the address was sent too many by all orgs together.
func (in *Invitations) mailInvitation(ctx context.Context, tx *db.Tx, p Principal, v Invitation, secret string) error {
	sum := sha256.Sum256([]byte(v.Email))
	err := countAttempt(ctx, tx.Q, "invited:"+hex.EncodeToString(sum[:]), invitesPerMail, inviteWindow)
	if fault.Is(err, fault.RateLimited) {
		return nil
	}
	if err != nil {
		return err
	}
	return in.cfg.Post(ctx, tx, Letter{User: p.User, To: v.Email, Subject: "An invitation to an organisation",
		Body: fmt.Sprintf("%s invites you to the organisation %q at %s, as %s (%s).\n\nTo answer, open within 7 days, "+
			"signed in with this e-mail address:\n\n%s/invitations/%s\n\nIf you do not know the sender, ignore this mail: "+
			"nothing happens without your answer.\n", p.Email, v.OrgName, in.cfg.PublicURL, v.Role, v.Role.About(),
			in.cfg.PublicURL, secret)})
}

// List lists the open invitations of the principal's org, newest first.
func (in *Invitations) List(ctx context.Context, p Principal) ([]Invitation, error) {
	rows, err := in.db.Q.ListInvitations(ctx, p.Org)
	if err != nil {
		return nil, fmt.Errorf("list invitations: %w", err)
	}
	out := make([]Invitation, len(rows))
	for i, r := range rows {
		out[i] = Invitation{ID: r.ID, Org: p.Org, OrgName: p.OrgName, Email: r.Email, Role: Role(r.Role), Inviter: r.Inviter,
			CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
	}
	return out, nil
}

// Withdraw ends an open invitation of the principal's org. Faults: NotFound, Forbidden.
func (in *Invitations) Withdraw(ctx context.Context, p Principal, v id.Invitation) error {
	return in.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, actor, _, err := lockMembers(ctx, tx, p, p.User)
		if err != nil {
			return err
		}
		role, err := tx.Q.WithdrawInvitation(ctx, v, p.Org)
		if db.NoRows(err) {
			return fault.New(fault.NotFound, "open invitation not found")
		}
		if err != nil {
			return fmt.Errorf("withdraw invitation: %w", err)
		}
		if err := mayHandle(p, actor, Role(role)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, p.Event("invitation.withdraw", v.String(), nil))
	})
}

// To lists the open invitations to the principal's e-mail address, newest first; none while the address is
// not verified: someone who signs up with the address of another person must not see who invites them.
func (in *Invitations) To(ctx context.Context, p Principal) ([]Invitation, error) {
	verified, err := in.db.Q.EmailVerified(ctx, p.User)
	if err != nil {
		return nil, fmt.Errorf("read user %s: %w", p.User, err)
	}
	if !verified {
		return []Invitation{}, nil
	}
	rows, err := in.db.Q.InvitationsOfEmail(ctx, p.Email)
	if err != nil {
		return nil, fmt.Errorf("list invitations: %w", err)
	}
	out := make([]Invitation, len(rows))
	for i, r := range rows {
		out[i] = Invitation{ID: r.ID, Org: r.OrgID, OrgName: r.OrgName, Email: p.Email, Role: Role(r.Role),
			Inviter: r.Inviter, ExpiresAt: r.ExpiresAt}
	}
	return out, nil
}

// errInvitation is the one answer for an invitation that cannot be answered, so that it shows nothing of others.
func errInvitation() error {
	return fault.New(fault.NotFound,
		"open invitation for you not found: it may have been withdrawn or be too old; "+
			"sign in with the e-mail address that it was sent to, or ask for another one")
}

// ByLink returns the invitation of a mailed link. Fault: NotFound.
func (in *Invitations) ByLink(ctx context.Context, secret string) (Invitation, error) {
	if len(secret) != secretLen {
		return Invitation{}, errInvitation()
	}
	r, err := in.db.Q.InvitationBySecret(ctx, hashSecret(secret))
	if db.NoRows(err) {
		return Invitation{}, errInvitation()
	}
	if err != nil {
		return Invitation{}, fmt.Errorf("find invitation: %w", err)
	}
	return Invitation{ID: r.ID, Org: r.OrgID, OrgName: r.OrgName, Email: r.Email, Role: Role(r.Role), Inviter: r.Inviter,
		ExpiresAt: r.ExpiresAt}, nil
}

// AnswerByLink accepts or declines the invitation of a mailed link, and returns its org. The link shows that the
// principal reads the mail of the address, which counts as verified then. Faults: those of Accept.
func (in *Invitations) AnswerByLink(ctx context.Context, p Principal, secret string, accept bool) (id.Org, error) {
	v, err := in.ByLink(ctx, secret)
	if err != nil {
		return id.Org{}, err
	}
	return v.Org, in.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return in.answer(ctx, tx, p, v.ID, accept, true)
	})
}

// Accept accepts an invitation to the principal's e-mail address, which has to be verified, and returns true. Faults:
// NotFound (also for an invitation to another person), Forbidden (a token that cannot do all that its user can),
// Conflict (a member already), QuotaExceeded.
func (in *Invitations) Accept(ctx context.Context, p Principal, v id.Invitation, once idem.Request) (bool, idem.Outcome,
	error) {
	return idem.Once(ctx, in.db, once, func(ctx context.Context, tx *db.Tx) (bool, error) {
		return true, in.answer(ctx, tx, p, v, true, false)
	})
}

// Decline ends an invitation to the principal's e-mail address. Faults: NotFound, Forbidden, as for Accept.
func (in *Invitations) Decline(ctx context.Context, p Principal, v id.Invitation) error {
	return in.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return in.answer(ctx, tx, p, v, false, false)
	})
}

func (in *Invitations) answer(ctx context.Context, tx *db.Tx, p Principal, v id.Invitation, accept, byLink bool) error {
	if !p.Whole() {
		return fault.New(fault.Forbidden, "this token cannot do all that you can: sign in to answer")
	}
	row, err := lockInvitation(ctx, tx, p, v, byLink)
	if err != nil {
		return err
	}
	outcome, e := "declined", p.Event("invitation.decline", v.String(), map[string]any{"role": row.Role})
	if accept {
		if err := in.join(ctx, tx, p, row); err != nil {
			return err
		}
		outcome, e = "accepted", p.Event("member.join", p.User.String(), map[string]any{"role": row.Role})
	}
	e.Org, e.Token = row.OrgID, id.Token{} // the token is of another org
	if err := tx.Q.EndInvitation(ctx, &outcome, v); err != nil {
		return fmt.Errorf("end invitation: %w", err)
	}
	return audit.Record(ctx, tx, e)
}

// lockInvitation locks the user, the org and an invitation that the principal may answer.
func lockInvitation(ctx context.Context, tx *db.Tx, p Principal, v id.Invitation,
	byLink bool) (dbq.LockInvitationRow, error) {
	var none dbq.LockInvitationRow
	user, err := tx.Q.LockUser(ctx, p.User)
	if err != nil {
		return none, fmt.Errorf("lock user %s: %w", p.User, err)
	}
	org, err := tx.Q.InvitationOrg(ctx, v)
	if db.NoRows(err) {
		return none, errInvitation()
	}
	if err == nil {
		_, err = tx.Q.LockOrg(ctx, org)
	}
	if err != nil {
		return none, fmt.Errorf("lock the org of %s: %w", v, err)
	}
	row, err := tx.Q.LockInvitation(ctx, v)
	if err != nil && !db.NoRows(err) {
		return none, fmt.Errorf("lock invitation %s: %w", v, err)
	}
	if err != nil || row.Email != user.Email || !(byLink || user.Verified) {
		return none, errInvitation()
	}
	if _, err := tx.Q.VerifyEmail(ctx, p.User, user.Email); err != nil {
		return none, fmt.Errorf("verify: %w", err)
	}
	return row, nil
}

// join makes the principal's user a member, and mails who invited them.
func (in *Invitations) join(ctx context.Context, tx *db.Tx, p Principal, v dbq.LockInvitationRow) error {
	n, err := tx.Q.CountMembers(ctx, v.OrgID)
	if err != nil {
		return fmt.Errorf("count members: %w", err)
	}
	if n.Members >= MaxMembers {
		return fault.New(fault.QuotaExceeded, "the organisation has %d members, the most there may be", MaxMembers)
	}
	err = tx.Q.InsertMembership(ctx, v.OrgID, p.User, v.Role)
	if db.IsUnique(err, "") {
		return fault.New(fault.Conflict, "you are a member of the organisation already")
	}
	if err != nil {
		return fmt.Errorf("insert membership: %w", err)
	}
	org, err := tx.Q.OrgName(ctx, v.OrgID)
	return errors.Join(err, in.members.mailMember(ctx, tx, p, v.CreatedBy, "Your invitation was accepted",
		fmt.Sprintf("%s is now a member of the organisation %q, as %s.", p.Email, org, v.Role)))
}
