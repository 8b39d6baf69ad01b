package postpaid

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// acct is an org's row and its money, locked.
type acct struct {
	row    dbq.PostpaidOrg
	locked *ledger.Locked
	now    time.Time // PostgreSQL's clock, read after the locks
}

func (a *acct) wallet() ledger.Account     { return ledger.Wallet(a.row.OrgID, a.row.Currency) }
func (a *acct) receivable() ledger.Account { return ledger.Receivable(a.row.OrgID, a.row.Currency) }
func (a *acct) owed() money.Nano           { return -a.locked.Balance(a.receivable()) }

// lock locks an org's row, then its money: what it owes, its wallet, and more where that is moved too.
func (p *Postpaid) lock(ctx context.Context, tx *db.Tx, org id.Org, more ...ledger.Account) (*acct, error) {
	row, err := tx.Q.PostpaidOrgForUpdate(ctx, org)
	if db.NoRows(err) {
		return nil, fault.New(fault.NotFound, "organisation not found, or it never paid afterwards")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", org, err)
	}
	a := &acct{row: row}
	if a.locked, err = ledger.Lock(ctx, tx, append(more, a.wallet(), a.receivable(), ledger.StripeClearing(row.Currency),
		ledger.Bank(row.Currency), ledger.Goodwill(row.Currency))...); err != nil {
		return nil, err
	}
	a.now, err = tx.Now(ctx)
	a.now = a.now.Add(p.ahead)
	return a, err
}

// lend lets the wallet fall as far below zero as the terms and the debt leave.
func (a *acct) lend(ctx context.Context) error {
	return a.locked.SetCredit(ctx, a.wallet(), credit(a.row, a.owed()))
}

// credit returns how far below zero the wallet may fall.
func credit(row dbq.PostpaidOrg, owed money.Nano) money.Nano {
	if row.State != string(On) || row.Stopped != "" {
		return 0
	}
	return max(0, row.CreditLimit-owed)
}

// wrapUp applies the consequences of what has changed: nothing is lent while an invoice is not paid; an org that was
// switched off and uses nothing any more gets its last invoice; one that owes nothing then is off.
func (p *Postpaid) wrapUp(ctx context.Context, tx *db.Tx, a *acct) error {
	unpaid, err := tx.Q.PostpaidUnpaid(ctx, a.row.OrgID)
	if err != nil {
		return fmt.Errorf("read unpaid invoices of %s: %w", a.row.OrgID, err)
	}
	was := a.row
	a.row.Stopped = ""
	if len(unpaid) > 0 {
		numbers := make([]string, len(unpaid))
		for i, u := range unpaid {
			numbers[i] = u.Number
		}
		a.row.Stopped = "not paid: invoice " + strings.Join(numbers, ", ")
	}
	if err := p.end(ctx, tx, a); err != nil {
		return err
	}
	if a.row.State == was.State && a.row.Stopped == was.Stopped {
		return a.lend(ctx)
	}
	if err := tx.Q.SetPostpaidState(ctx, a.row.State, a.row.Stopped, a.row.OrgID); err != nil {
		return fmt.Errorf("set state of %s: %w", a.row.OrgID, err)
	}
	if was.Stopped != "" && a.row.Stopped == "" && a.row.State == string(On) {
		if _, err := notify.Add(ctx, tx, notify.Notice{
			Org:      a.row.OrgID,
			Key:      "postpaid:" + id.New[id.Notice]().String(),
			Severity: notify.Info,
			Object:   a.row.OrgID.String(),
			Title:    "Your credit is back",
			Body:     "Every invoice is paid. You can rent on credit again.",
		}); err != nil {
			return err
		}
	}
	return a.lend(ctx)
}

// end takes an org that was switched off to its end.
func (p *Postpaid) end(ctx context.Context, tx *db.Tx, a *acct) error {
	if a.row.State != string(Ending) {
		return nil
	}
	have, err := ledger.OrgBalances(ctx, tx.Q, a.row.OrgID, a.row.Currency)
	if err != nil || have.Held > 0 || a.locked.Balance(a.wallet()) < 0 {
		return err // something may still be used, or is not billed yet
	}
	if a.row.Subscription != nil {
		if a.row.UnsubscribedAt != nil {
			return nil // an event of Stripe follows when it is done
		}
		a.row.UnsubscribedAt = &a.now
		if err := tx.Q.SetPostpaidUnsubscribed(ctx, &a.now, a.row.OrgID); err != nil {
			return fmt.Errorf("set end of %s: %w", a.row.OrgID, err)
		}
		rows, err := p.pay.Unsubscribe(ctx, tx, a.row.OrgID, *a.row.Subscription, true)
		if err != nil {
			return err
		}
		p.sendAfter(ctx, tx, rows)
		return nil
	}
	n, err := tx.Q.PostpaidUnfinished(ctx, a.row.OrgID)
	if err != nil {
		return fmt.Errorf("read invoices of %s: %w", a.row.OrgID, err)
	}
	owed := a.owed()
	if n > 0 || owed >= leastCents*money.Cent || a.row.UnsubscribedAt == nil && owed > 0 {
		return nil
	}
	if owed > 0 { // less than Stripe collects
		if _, err := a.locked.Post(ctx, ledger.Entry{
			Kind:      "postpaid_rest",
			Key:       fmt.Sprintf("postpaid:%s:rest:%d", a.row.OrgID, a.row.Charges),
			Ref:       a.row.OrgID.String(),
			Memo:      "too little to be collected",
			Transfers: []ledger.Transfer{{Debit: ledger.Goodwill(a.row.Currency), Credit: a.receivable(), Amount: owed}},
		}); err != nil {
			return err
		}
	}
	a.row.State = string(Off)
	return nil
}

// subscription applies the state of an org's subscription at Stripe.
func (p *Postpaid) subscription(ctx context.Context, tx *db.Tx, org id.Org, s stripe.Subscription) error {
	a, err := p.lock(ctx, tx, org)
	if err != nil {
		return err
	}
	ours := a.row.Subscription != nil && *a.row.Subscription == s.ID
	over := s.Status == "canceled" || s.Status == "incomplete_expired"
	set := dbq.SetPostpaidSubscriptionParams{Subscription: &s.ID, PeriodStart: &s.Start, PeriodEnd: &s.End, OrgID: org}
	switch {
	case over && !ours:
		return nil // an earlier one
	case over:
		set.Subscription = nil
	case ours && a.row.PeriodEnd != nil && s.End.Before(*a.row.PeriodEnd):
		return nil // old news
	}
	if err := tx.Q.SetPostpaidSubscription(ctx, set); err != nil {
		return fmt.Errorf("set subscription of %s: %w", org, err)
	}
	a.row.Subscription = set.Subscription
	switch {
	case over && a.row.State == string(On): // ended at Stripe, or an end of ours that was overtaken
		return p.subscribe(ctx, tx, a)
	case !over && a.row.State == string(Off): // switched off before Stripe received that it was on
		a.row.State = string(Ending)
		if err := tx.Q.SetPostpaidState(ctx, a.row.State, a.row.Stopped, org); err != nil {
			return fmt.Errorf("set state of %s: %w", org, err)
		}
	}
	return p.wrapUp(ctx, tx, a)
}

// lostSubscription switches an org off that Stripe does not bill.
func (p *Postpaid) lostSubscription(ctx context.Context, tx *db.Tx, a *acct, why string) error {
	a.row.State = string(Ending)
	if err := tx.Q.SetPostpaidState(ctx, a.row.State, a.row.Stopped, a.row.OrgID); err != nil {
		return fmt.Errorf("set state of %s: %w", a.row.OrgID, err)
	}
	admins, err := tx.Q.AdminOrgs(ctx)
	if err != nil {
		return fmt.Errorf("read admins: %w", err)
	}
	for _, org := range append(admins, a.row.OrgID) {
		if _, err := notify.Add(ctx, tx, notify.Notice{
			Org:      org,
			Key:      "postpaid:lost:" + id.New[id.Notice]().String(),
			Severity: notify.Bad,
			Object:   a.row.OrgID.String(),
			Title:    fmt.Sprintf("%s pays ahead again: Stripe does not bill it", a.row.OrgID),
			Body:     why + " It gets no more credit. What it owes is invoiced when paying afterwards is switched on again.",
		}); err != nil {
			return err
		}
	}
	return a.lend(ctx)
}

// refused applies that Stripe will never do what a row requests. A report of usage that was refused changes no bill:
// the next invoice is made equal to the ledger.
func (p *Postpaid) refused(ctx context.Context, tx *db.Tx, kind, ref string, why *stripe.Error) error {
	p.log.WarnContext(ctx, "Stripe rejected a request that bills an organisation", "kind", kind, "ref", ref, "error", why)
	switch kind {
	case payment.KindWriteOff:
		return p.refusedWriteOff(ctx, tx, ref, why)
	case payment.KindSubscribe:
	default:
		return nil
	}
	org, err := id.Parse[id.Org](ref)
	if err != nil {
		return err
	}
	a, err := p.lock(ctx, tx, org)
	if err != nil || a.row.State != string(On) || a.row.Subscription != nil {
		return err
	}
	return p.lostSubscription(ctx, tx, a, "Stripe refuses to bill it: "+why.Message+".")
}
