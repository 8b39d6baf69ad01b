package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/bond"
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
func (p *Payments) updateStanding(ctx context.Context, tx *db.Tx, org id.Org) error {
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
	if err := p.stopAuto(ctx, tx, org, why); err != nil {
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

// reserve makes what the org's disputes claim unavailable in its wallet and in the bond of its hosts, whatever is
// credited to them later. books has the wallet, and the bond if there is one.
func (p *Payments) reserve(ctx context.Context, tx *db.Tx, books *ledger.Locked, wallet ledger.Account) error {
	c, err := tx.Q.DisputeClaims(ctx, wallet.Org, wallet.Currency)
	if err != nil {
		return fmt.Errorf("read claims on %s: %w", wallet.Org, err)
	}
	return reserveIn(ctx, books, wallet, money.Nano(c.Short+c.Debt))
}

func reserveIn(ctx context.Context, books *ledger.Locked, wallet ledger.Account, claims money.Nano) error {
	if err := books.Reserve(ctx, wallet, claims); err != nil {
		return err
	}
	if kept := ledger.HostBond(wallet.Org, wallet.Currency); books.Has(kept) {
		return books.Reserve(ctx, kept, claims)
	}
	return nil
}

// CollectClaims moves what disputes claim out of the wallets and bonds it has returned to: of an open dispute to
// dispute_hold, of a lost one to bad_debt. It returns how many organisations it processed. Nothing depends on when it
// runs, because what is claimed cannot be spent meanwhile. Run it every few seconds, on any number of replicas.
func (p *Payments) CollectClaims(ctx context.Context) (n int, err error) {
	rows, err := p.d.Q.WalletsWithClaims(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("read wallets with claims: %w", err)
	}
	var errs []error
	for _, r := range rows {
		if err := p.collect(ctx, r.OrgID, r.Currency); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// collect is CollectClaims for one organisation. Open disputes come first, the oldest of each kind first.
func (p *Payments) collect(ctx context.Context, org id.Org, currency string) error {
	err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := tx.Q.LockDisputesWithClaims(ctx, org, currency)
		if err != nil {
			return fmt.Errorf("lock disputes: %w", err)
		}
		wallet := ledger.Wallet(org, currency)
		accounts, err := bond.Account(ctx, tx.Q, org, currency)
		if err != nil {
			return err
		}
		books, err := ledger.Lock(ctx, tx, append(accounts, wallet, ledger.DisputeHold(org, currency),
			ledger.BadDebt(currency))...)
		if err != nil {
			return err
		}
		if err := reserveIn(ctx, books, wallet, 0); err != nil { // what is reserved is taken now
			return err
		}
		for _, open := range []bool{true, false} {
			for _, d := range rows {
				if (d.State == disputeOpen) != open {
					continue
				}
				if err := collectFor(ctx, tx, books, wallet, d); err != nil {
					return fmt.Errorf("dispute %s: %w", d.ID, err)
				}
			}
		}
		return p.reserve(ctx, tx, books, wallet)
	})
	if err != nil {
		return fmt.Errorf("collect from %s: %w", org, err)
	}
	return nil
}

// collectFor moves what one dispute claims, as far as there is something to take.
func collectFor(ctx context.Context, tx *db.Tx, books *ledger.Locked, wallet ledger.Account,
	d dbq.LockDisputesWithClaimsRow) error {
	take, err := takeClaim(ctx, tx, books, wallet, max(0, books.Balance(wallet)), money.Nano(d.Claim))
	part := take.sum()
	if err != nil || part == 0 {
		return err
	}
	e := ledger.Entry{Ref: wallet.Org.String()}
	if d.State == disputeOpen {
		e.Kind, e.Key, e.Memo = "dispute", fmt.Sprintf("dispute:%s:aside:%d", d.ID, int64(d.Held+part)),
			"a payment is disputed"
		e.Transfers = take.to(wallet, ledger.DisputeHold(wallet.Org, wallet.Currency))
		err = tx.Q.SetDisputeHeld(ctx, d.Held+part, d.HeldBond+take.earned, d.ID)
	} else {
		e.Kind, e.Key, e.Memo = "dispute_repaid", fmt.Sprintf("dispute:%s:repaid:%d", d.ID, int64(d.Debt-part)),
			"repays a lost dispute"
		e.Transfers = take.to(wallet, ledger.BadDebt(wallet.Currency))
		err = tx.Q.SetDisputeDebt(ctx, d.Debt-part, d.ID)
	}
	if err != nil {
		return fmt.Errorf("set debt: %w", err)
	}
	booked, err := books.Post(ctx, e)
	if err == nil && !booked { // the row and the ledger move together or not at all
		err = fmt.Errorf("%s is in the ledger and not on its row", e.Key)
	}
	return err
}

// allowDisputed refuses a top-up that the org's disputes forbid. Faults: Forbidden (suspended), QuotaExceeded.
func (p *Payments) allowDisputed(ctx context.Context, tx *db.Tx, org id.Org, amount money.Nano) error {
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
	left, err := p.leftWhileDisputed(ctx, tx.Q, org)
	if err != nil || amount <= left {
		return err
	}
	return fault.New(fault.QuotaExceeded, "while a payment is disputed, at most %s %s more can be added", inCents(left),
		p.cfg.Currency)
}

// leftWhileDisputed returns what an org with an open dispute may still add: the limit, or as much as is missing for the
// dispute.
func (p *Payments) leftWhileDisputed(ctx context.Context, q *dbq.Queries, org id.Org) (money.Nano, error) {
	added, err := q.AddedWhileDisputed(ctx, org)
	if err != nil {
		return 0, fmt.Errorf("read what was added by %s: %w", org, err)
	}
	c, err := q.DisputeClaims(ctx, org, p.cfg.Currency)
	if err != nil {
		return 0, fmt.Errorf("read claims on %s: %w", org, err)
	}
	claims := money.Nano(c.Short + c.Debt)
	return max(p.cfg.DisputedLimit-money.Nano(added), claims+(money.Cent-claims%money.Cent)%money.Cent), nil
}

// NotInGoodStanding is an org with open disputes, or one that is suspended.
type NotInGoodStanding = client.OrgStanding

// Standings lists the orgs that are not in good standing, the latest change first, at most 200. Only an admin may.
// Fault: Forbidden.
func (p *Payments) Standings(ctx context.Context, who account.Principal) ([]NotInGoodStanding, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.OrgsNotInGoodStanding(ctx, p.cfg.Currency, 200)
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
func (p *Payments) Forgive(ctx context.Context, who account.Principal, org id.Org, reason string,
	once idem.Request) (id.Org, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return org, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (id.Org, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return org, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
		}
		if _, err := tx.Q.OrgName(ctx, org); db.NoRows(err) {
			return org, fault.New(fault.NotFound, "organisation not found")
		} else if err != nil {
			return org, fmt.Errorf("read name of %s: %w", org, err)
		}
		if _, err := ledger.Lock(ctx, tx, ledger.Wallet(org, p.cfg.Currency)); err != nil {
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
