package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// StandingState is whether an org may pay in and rent as usual.
type StandingState = client.StandingState

// States of an org's standing; see package client.
const (
	StandingOK        = client.StandingOK
	StandingDisputed  = client.StandingDisputed
	StandingSuspended = client.StandingSuspended
)

const (
	// lostUntilSuspended is how many lost disputes suspend an org.
	lostUntilSuspended = 3
	// DefaultDisputedLimit is what an org may add while a payment of it is disputed, when nothing else is configured.
	DefaultDisputedLimit = 100 * money.Unit
)

// standingAfter returns the state of an org with a number of disputes open and lost, of which admins have forgiven some
// of the lost ones.
func standingAfter(open, lost, forgiven int64) StandingState {
	switch {
	case lost-forgiven >= lostUntilSuspended:
		return StandingSuspended
	case open > 0:
		return StandingDisputed
	}
	return StandingOK
}

// updateStanding stores the org's state after a dispute was opened or closed. The caller holds the lock on the org's
// wallet.
func updateStanding(ctx context.Context, tx *db.Tx, org id.Org) error {
	was, err := tx.Q.PaymentStandingForUpdate(ctx, org)
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("lock payment standing of %s: %w", org, err)
	}
	n, err := tx.Q.DisputeCounts(ctx, org)
	if err != nil {
		return fmt.Errorf("read disputes of %s: %w", org, err)
	}
	state := standingAfter(n.Open, n.Lost, int64(was.Forgiven))
	if err := tx.Q.SetPaymentStanding(ctx, dbq.SetPaymentStandingParams{
		OrgID:    org,
		State:    string(state),
		Forgiven: was.Forgiven,
		Note:     was.Note,
	}); err != nil {
		return fmt.Errorf("set payment standing of %s: %w", org, err)
	}
	if state != StandingSuspended || was.State == string(StandingSuspended) {
		return nil
	}
	why := fmt.Sprintf("%d disputed payments were decided for the card's owner.", n.Lost)
	if err := stopAuto(ctx, tx, org, why); err != nil {
		return err
	}
	key := fmt.Sprintf("suspended:%d", n.Lost)
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      key,
		Severity: notify.Bad,
		Object:   org.String(),
		Title:    "Your organisation is suspended",
		Body:     why + " You cannot rent anything new or add credit. Write to us if this is a mistake.",
	}); err != nil {
		return err
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      key + ":" + org.String(),
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    "An organisation was suspended",
		Body: why + " It cannot rent anything new or add credit until the disputes are forgiven, on its page or with " +
			"muster admin standing.",
	})
}

// allowDisputed refuses a top-up that the org's disputes forbid. Faults: Forbidden (suspended), QuotaExceeded.
func (st *Standings) allowDisputed(ctx context.Context, tx *db.Tx, org id.Org, amount money.Nano) error {
	s, err := tx.Q.PaymentStanding(ctx, org)
	if db.NoRows(err) || err == nil && s.State == string(StandingOK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read payment standing of %s: %w", org, err)
	}
	if s.State == string(StandingSuspended) {
		return fault.New(fault.Forbidden, "your organisation is suspended because of lost disputes: no credit can be added")
	}
	if err := tx.Q.LockTopups(ctx, org.String()); err != nil {
		return fmt.Errorf("lock top-ups of %s: %w", org, err)
	}
	left, err := st.leftWhileDisputed(ctx, tx.Q, org)
	if err != nil || amount <= left {
		return err
	}
	return fault.New(fault.QuotaExceeded, "while a payment is disputed, at most %s %s more can be added", inCents(left),
		st.cfg.Currency)
}

// leftWhileDisputed returns what an org with an open dispute may still add: the limit, or as much as is missing for the
// dispute.
func (st *Standings) leftWhileDisputed(ctx context.Context, q *dbq.Queries, org id.Org) (money.Nano, error) {
	added, err := q.AddedWhileDisputed(ctx, org)
	if err != nil {
		return 0, fmt.Errorf("read what was added by %s: %w", org, err)
	}
	c, err := q.DisputeClaims(ctx, org, st.cfg.Currency)
	if err != nil {
		return 0, fmt.Errorf("read claims on %s: %w", org, err)
	}
	claims := money.Nano(c.Short + c.Debt)
	return max(st.cfg.DisputedLimit-money.Nano(added), claims+(money.Cent-claims%money.Cent)%money.Cent), nil
}

// NotInGoodStanding is an org with open disputes, or one that is suspended.
type NotInGoodStanding = client.OrgStanding

// List lists the orgs that are not in good standing, the latest change first, at most 200. Only an admin may.
// Fault: Forbidden.
func (st *Standings) List(ctx context.Context, who account.Principal) ([]NotInGoodStanding, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := st.d.Q.OrgsNotInGoodStanding(ctx, st.cfg.Currency, 200)
	if err != nil {
		return nil, fmt.Errorf("read payment standings: %w", err)
	}
	out := make([]NotInGoodStanding, len(rows))
	for i, r := range rows {
		out[i] = NotInGoodStanding{
			Org:     r.OrgID,
			Name:    r.Name,
			State:   StandingState(r.State),
			Open:    r.Open,
			Lost:    r.Lost,
			Debt:    money.Nano(r.Debt),
			Changed: r.ChangedAt,
		}
	}
	return out, nil
}

// Forgive makes the org's lost disputes of today not count towards a suspension; debts stay, and so do blocked cards.
// Only an admin may, with a reason for the audit log. Faults: Forbidden, Invalid, Conflict (nothing was lost).
func (st *Standings) Forgive(ctx context.Context, who account.Principal, org id.Org, reason string,
	once idem.Request) (id.Org, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return org, idem.Outcome{}, err
	}
	return idem.Once(ctx, st.d, once, func(ctx context.Context, tx *db.Tx) (id.Org, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return org, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
		}
		if _, err := tx.Q.OrgName(ctx, org); db.NoRows(err) {
			return org, fault.New(fault.NotFound, "organisation not found")
		} else if err != nil {
			return org, fmt.Errorf("read name of %s: %w", org, err)
		}
		if _, err := ledger.Lock(ctx, tx, ledger.Wallet(org, st.cfg.Currency)); err != nil {
			return org, err
		}
		n, err := tx.Q.DisputeCounts(ctx, org)
		if err != nil {
			return org, fmt.Errorf("read disputes of %s: %w", org, err)
		}
		if n.Lost == 0 {
			return org, fault.New(fault.Conflict, "the organisation has lost no dispute")
		}
		state := standingAfter(n.Open, n.Lost, n.Lost)
		if err := tx.Q.SetPaymentStanding(ctx, dbq.SetPaymentStandingParams{
			OrgID:    org,
			State:    string(state),
			Forgiven: int32(n.Lost),
			Note:     reason,
		}); err != nil {
			return org, fmt.Errorf("set payment standing of %s: %w", org, err)
		}
		return org, audit.Record(ctx, tx, who.Event("billing.disputes_forgive", org.String(), map[string]any{
			"lost":   n.Lost,
			"reason": reason,
		}))
	})
}
