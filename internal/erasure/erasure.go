// Package erasure deletes a person's data: what is kept only for the person at once, and documents that the law makes
// us keep when their retention is over. It also ends what a stranger left in an organisation; see Takeover.
//
// What always holds:
//   - No person is deleted while something of theirs still runs, is owed to them or by them, or is disputed.
//   - After a deletion no e-mail address, name, network address, public key or secret of the person is left in
//     app_user, session, mail, notice, audit_event, api_token or ssh_key, and no one can sign in as the person.
//   - An organisation that loses its last member has no volumes, and the keys of what they stored are destroyed. What
//     its person gave up is the platform's income, and what returns to it later becomes that within a day.
//   - Documents with a number stay as they are until their retention is over. Their numbers are kept permanently.
package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// DeletionStanding is whether a person can be deleted now.
type DeletionStanding = client.DeletionStanding

// Erasure is the use cases of a person's data. It is safe for concurrent use.
type Erasure struct {
	db        *db.DB
	passwords *account.Passwords
}

// New returns the use cases; it starts nothing.
func New(d *db.DB, passwords *account.Passwords) *Erasure {
	return &Erasure{d, passwords}
}

// Standing returns what prevents the deletion of p's user, who keeps the money that is left.
func (e *Erasure) Standing(ctx context.Context, p account.Principal) (DeletionStanding, error) {
	return standing(ctx, e.db.Q, p.User, false)
}

// standing returns what prevents a user's deletion. With giveUp they give up the money that is left.
func standing(ctx context.Context, q *dbq.Queries, user id.User, giveUp bool) (DeletionStanding, error) {
	s := DeletionStanding{Reasons: []string{}}
	admin, err := q.IsAdmin(ctx, user)
	if err != nil {
		return s, fmt.Errorf("read whether %s is an admin: %w", user, err)
	}
	if admin {
		s.Reasons = append(s.Reasons, "you are an admin of the platform: ask another admin to end that first")
	}
	orgs, err := q.OrgsOfUser(ctx, user)
	if err != nil {
		return s, fmt.Errorf("organisations of %s: %w", user, err)
	}
	for _, o := range orgs {
		if o.Others > 0 {
			if o.OtherOwners == 0 {
				s.Reasons = append(s.Reasons, fmt.Sprintf("you are the only owner of %s, which has other members: make one of "+
					"them an owner", o.Name))
			}
			continue
		}
		x, err := q.OrgObstacles(ctx, o.OrgID)
		if err != nil {
			return s, fmt.Errorf("obstacles of %s: %w", o.OrgID, err)
		}
		s.Credit += money.Nano(x.Credit)
		s.Reasons = append(s.Reasons, reasons(x, giveUp)...)
	}
	return s, nil
}

// reasons are what keeps an org from being left without members, in words.
func reasons(x dbq.OrgObstaclesRow, giveUp bool) (out []string) {
	for _, r := range []struct {
		n    int64
		text string
	}{
		{x.Clusters, "clusters are running: release them"},
		{x.Leases, "the bills of ended clusters are not final: wait, at most two days"},
		{x.Hosts, "you are the only member of an organisation with hosts: retire them"},
		{x.Disputes, "a payment is disputed: wait until that is decided"},
		{x.Payouts, "a payout is on its way: wait until it has arrived"},
		{int64(x.Payments), "a payment or a refund is on its way: wait until it has arrived"},
		{x.Cards, "a card is saved: remove it"},
		{x.Postpaid, "you pay afterwards: ask the platform to end that, and pay the last invoice"},
	} {
		if r.n > 0 {
			out = append(out, r.text)
		}
	}
	if x.Owed < 0 {
		out = append(out, money.Nano(-x.Owed).Plain()+" are owed: pay them")
	}
	if x.Storage > 0 {
		out = append(out, money.Nano(x.Storage).Plain()+" are owed for what volumes stored: add that much credit")
	}
	if x.Credit > 0 && !giveUp {
		out = append(out, money.Nano(x.Credit).Plain()+" are left: request a refund or a payout, or give up the rest")
	}
	return out
}

// Request asks for the deletion of who makes it.
type Request struct {
	Password string
	Confirm  string // the person's e-mail address, typed
	GiveUp   bool   // the money that is left
}

// Delete erases the data of p's user at once. Documents that have to be kept stay until EndRetention erases them.
// Faults: Invalid (the password, the confirmation), Conflict (Standing returns the reasons), RateLimited.
func (e *Erasure) Delete(ctx context.Context, p account.Principal, r Request) error {
	if !strings.EqualFold(strings.TrimSpace(r.Confirm), p.Email) {
		return fault.InvalidField("confirm", "has to be your e-mail address")
	}
	if err := e.passwords.Check(ctx, p, r.Password); err != nil {
		return err
	}
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return e.erase(ctx, tx, p, r.GiveUp) })
}

func (e *Erasure) erase(ctx context.Context, tx *db.Tx, p account.Principal, giveUp bool) error {
	row, err := tx.Q.UserPasswordHash(ctx, p.User) // the lock keeps another deletion out
	if err != nil {
		return fmt.Errorf("lock %s: %w", p.User, err)
	}
	if _, err := tx.Q.LockOrgsOfUser(ctx, p.User); err != nil { // their members do not change meanwhile
		return fmt.Errorf("lock the organisations of %s: %w", p.User, err)
	}
	s, err := standing(ctx, tx.Q, p.User, giveUp)
	if err != nil {
		return err
	}
	if len(s.Reasons) > 0 {
		return fault.New(fault.Conflict, "your account cannot be deleted now: %s", strings.Join(s.Reasons, "; "))
	}
	orgs, err := tx.Q.OrgsOfUser(ctx, p.User)
	if err != nil {
		return fmt.Errorf("organisations of %s: %w", p.User, err)
	}
	event := p.Event("user.delete", p.User.String(), map[string]any{"gave_up": s.Credit.String()})
	event.Address = ""
	if err := audit.Record(ctx, tx, event); err != nil {
		return err
	}
	ids := make([]pgtype.UUID, len(orgs))
	var ended []pgtype.UUID
	for i, o := range orgs {
		ids[i] = pgtype.UUID{Bytes: o.OrgID.UUID(), Valid: true}
		if o.Others > 0 {
			continue
		}
		ended = append(ended, ids[i])
		if err := errors.Join(volume.EraseOrg(ctx, tx, o.OrgID), sharedfs.EraseOrg(ctx, tx, o.OrgID)); err != nil {
			return err
		}
		_, stop := tx.Q.StopAutoTopup(ctx, "The account was deleted.", o.OrgID)
		_, legal := tx.Q.EraseOrgLegal(ctx, o.OrgID)
		if err := errors.Join(stop, legal, tx.Q.EraseNoticesOfOrg(ctx, o.OrgID), tx.Q.EraseWebhooksOfOrg(ctx, o.OrgID),
			tx.Q.EraseBucketsOfOrg(ctx, o.OrgID), tx.Q.EraseCardsOfOrg(ctx, o.OrgID),
			tx.Q.EraseTemplatesOfOrg(ctx, o.OrgID), tx.Q.EraseOrgName(ctx, o.OrgID)); err != nil {
			return fmt.Errorf("erase %s: %w", o.OrgID, err)
		}
	}
	if err := errors.Join(
		tx.Q.EraseMailOfUser(ctx, p.User, row.Email),
		tx.Q.EraseAuditOfUser(ctx, p.User, ids),
		tx.Q.EraseAuditAboutUser(ctx, p.User.String()),
		tx.Q.EraseTokensOfUser(ctx, p.User),
		tx.Q.EraseSSHKeysOfUser(ctx, p.User),
		tx.Q.EraseSessionsOfUser(ctx, p.User),
		tx.Q.EraseVerificationsOfUser(ctx, p.User),
		tx.Q.EraseInvitations(ctx, row.Email, p.User, ended),
		account.EraseFactors(ctx, tx, p.User),
		tx.Q.EraseMemberships(ctx, p.User),
		tx.Q.EraseUser(ctx, p.User),
	); err != nil {
		return fmt.Errorf("erase %s: %w", p.User, err)
	}
	for _, o := range orgs {
		if o.Others > 0 {
			continue
		}
		if err := ledger.GiveUp(ctx, tx, o.OrgID); err != nil {
			return err
		}
	}
	return nil
}

// BookGivenUp books to breakage what organisations without members have: what returned to them since the deletion, and
// what was given up before there was such an account. It returns how many it processed. Run it daily; any replica may.
func BookGivenUp(ctx context.Context, d *db.DB) (n int, err error) {
	orgs, err := d.Q.OrgsThatGaveUp(ctx)
	if err != nil {
		return 0, fmt.Errorf("read money of organisations without members: %w", err)
	}
	var errs []error
	for _, o := range orgs {
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return ledger.GiveUp(ctx, tx, o) }); err != nil {
			errs = append(errs, fmt.Errorf("give up the money of %s: %w", o, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// Export is what is kept of p's user, as JSON: without secrets.
func (e *Erasure) Export(ctx context.Context, p account.Principal) (json.RawMessage, error) {
	data, err := e.db.Q.ExportUser(ctx, p.User)
	if err != nil {
		return nil, fmt.Errorf("export of %s: %w", p.User, err)
	}
	return data, nil
}

// Retention is for how many years from the end of its calendar year a document is kept. The database holds to it, too.
const Retention = 10

// EndRetention erases the contents of documents whose retention is over, and returns how many. Run it daily; any
// replica may.
func EndRetention(ctx context.Context, d *db.DB) (n int, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n = 0
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		before := time.Date(now.Year()-Retention, 1, 1, 0, 0, 0, 0, time.UTC)
		if err := tx.Q.BeginRetentionJob(ctx); err != nil {
			return err
		}
		for _, f := range []func(context.Context, time.Time) (int64, error){
			tx.Q.EraseReceipts, tx.Q.EraseInvoices, tx.Q.EraseTaxVATIDs, tx.Q.EraseTopupVATIDs,
			func(ctx context.Context, t time.Time) (int64, error) { return tx.Q.EraseDocuments(ctx, t) },
		} {
			did, err := f(ctx, before)
			if err != nil {
				return fmt.Errorf("documents whose retention is over: %w", err)
			}
			n += int(did)
		}
		return nil
	})
	return n, err
}
