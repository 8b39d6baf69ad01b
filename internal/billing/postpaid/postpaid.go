// Package postpaid lets orgs pay afterwards: up to a credit limit that an admin sets, billed by Stripe.
//
// What always holds:
//   - What an org has used or holds on credit, and what it was billed and has not paid, together never exceed its
//     limit: its wallet may fall below zero by what is left of the limit, and the database enforces that. A limit that
//     is lowered, or credit that is stopped, lends nothing more; what is authorised already, an hour at most, runs on.
//   - An org's own money counts first: prepaid, given by code or back for a host's fault. Only what is used beyond it
//     is lent.
//   - Credit changes in the transaction that changes what it depends on: limit, debt, standing.
//   - What was used on credit is billed once: an hourly charge takes all that the wallet and the holds are short of
//     together, into renter_receivable, and the meter's event is queued in the same transaction under the transfer's
//     id.
//   - An invoice is ⌊charged until its end⌋ in cents less all earlier invoices. Being cumulative, one that came out
//     otherwise, because Stripe closed it before it was seen, is corrected by the next. Its tax comes on top, is
//     decided when the draft is seen, and is cumulative as well: what Stripe closed without its tax is taxed with the
//     next.
//   - An invoice is given up by an admin, not by Stripe: it becomes bad debt once an admin has decided and Stripe has
//     confirmed it. While an invoice is written off and not paid after all, the org has no credit.
//   - Stripe's events and answers may come twice, late or in any order: each payment is booked once, under the
//     invoice's id.
//
// Locks: the org's row here, then the ledger's accounts.
package postpaid

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// MaxLimit bounds what one org may owe.
const MaxLimit = 10_000_000 * money.Unit

// Config of paying afterwards.
type Config struct {
	Currency string // ISO 4217, upper case
}

// Postpaid is the use cases. Safe for concurrent use.
type Postpaid struct {
	d   *db.DB
	out *outbox.Outbox
	pay *payment.Invoices
	cfg Config
	log *slog.Logger

	ahead time.Duration // of PostgreSQL's clock; tests let months pass with it
}

// New checks the configuration, and registers with pay for the states of subscriptions and invoices. Call it before pay
// sends anything.
func New(d *db.DB, out *outbox.Outbox, pay *payment.Invoices, cfg Config,
	log *slog.Logger) (*Postpaid, error) {
	if err := money.CheckCurrency(cfg.Currency); err != nil {
		return nil, err
	}
	p := &Postpaid{d: d, out: out, pay: pay, cfg: cfg, log: log}
	pay.Bill(payment.Biller{
		Subscription: p.subscription,
		Taxable:      p.taxable,
		Invoice:      p.invoice,
		TakenBack:    p.takenBack,
		Refused:      p.refused,
	})
	return p, nil
}

// State of an org's credit.
type State = client.PostpaidState

const (
	On     = client.PostpaidOn
	Ending = client.PostpaidEnding // switched off: nothing more is lent, what was used is still billed
	Off    = client.PostpaidOff    // pays ahead, the default
)

// Terms are an org's.
type Terms = client.PostpaidTerms

// Change is what an admin changes of an org's credit.
type Change struct {
	On     bool
	Limit  money.Nano // when on; above zero
	Reason string     // the org reads it
}

// Set lets an org pay afterwards up to a limit, changes the limit, or switches paying afterwards off. Off, nothing more
// is lent; what is authorised runs on, an hour at most, and what was used is billed. Only an admin may. Faults:
// Forbidden, NotFound, Invalid.
func (p *Postpaid) Set(ctx context.Context, who account.Principal, org id.Org, c Change,
	once idem.Request) (Terms, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return Terms{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (Terms, error) {
		if err := c.check(); err != nil {
			return Terms{}, err
		}
		if err := tx.Q.AddPostpaidOrg(ctx, p.cfg.Currency, who.User, org); err != nil {
			return Terms{}, fmt.Errorf("add postpaid org %s: %w", org, err)
		}
		a, err := p.lock(ctx, tx, org)
		if err != nil {
			return Terms{}, err
		}
		was := a.row
		if err := p.setTerms(ctx, tx, a, who, c); err != nil {
			return Terms{}, err
		}
		if err := p.notifyTerms(ctx, tx, was, a.row); err != nil {
			return Terms{}, err
		}
		if err := audit.Record(ctx, tx, who.Event("billing.postpaid", org.String(), map[string]any{
			"on":           c.On,
			"credit_limit": a.row.CreditLimit.String(),
			"was":          was.State,
			"was_limit":    was.CreditLimit.String(),
			"reason":       a.row.Reason,
		})); err != nil {
			return Terms{}, err
		}
		return p.terms(ctx, tx.Q, org)
	})
}

// setTerms stores the change of an org's terms and does what follows from it. The org is locked.
func (p *Postpaid) setTerms(ctx context.Context, tx *db.Tx, a *acct, who account.Principal, c Change) error {
	row := &a.row
	switch {
	case c.On:
		row.State, row.CreditLimit = string(On), c.Limit
	case row.State != string(Off):
		row.State, row.CreditLimit = string(Ending), 0
	}
	row.Reason, row.ChangedBy = strings.TrimSpace(c.Reason), who.User
	if err := tx.Q.SetPostpaidTerms(ctx, dbq.SetPostpaidTermsParams{
		State:       row.State,
		CreditLimit: row.CreditLimit,
		Reason:      row.Reason,
		ChangedBy:   row.ChangedBy,
		OrgID:       row.OrgID,
	}); err != nil {
		return fmt.Errorf("set terms of %s: %w", row.OrgID, err)
	}
	if c.On && (row.Subscription == nil || row.UnsubscribedAt != nil) {
		if err := p.subscribe(ctx, tx, a); err != nil {
			return err
		}
	}
	if row.State != string(Off) {
		if err := p.charge(ctx, tx, a); err != nil {
			return err
		}
	}
	return p.wrapUp(ctx, tx, a)
}

// subscribe has Stripe bill the org from now on.
func (p *Postpaid) subscribe(ctx context.Context, tx *db.Tx, a *acct) error {
	a.row.UnsubscribedAt = nil
	if err := tx.Q.SetPostpaidUnsubscribed(ctx, nil, a.row.OrgID); err != nil {
		return fmt.Errorf("subscribe %s: %w", a.row.OrgID, err)
	}
	rows, err := p.pay.Subscribe(ctx, tx, a.row.OrgID)
	if err != nil {
		return err
	}
	p.sendAfter(ctx, tx, rows)
	return nil
}

func (c Change) check() error {
	var bad fault.Fields
	if c.On && (c.Limit < money.Unit || c.Limit > MaxLimit) {
		bad.Add("credit_limit", "must be between %s and %s", money.Unit.Plain(), MaxLimit.Plain())
	}
	if r := strings.TrimSpace(c.Reason); r == "" || len(r) > 500 {
		bad.Add("reason", "must give the reason in at most 500 bytes; the organisation reads it")
	}
	return bad.Err()
}

func (p *Postpaid) notifyTerms(ctx context.Context, tx *db.Tx, was, now dbq.PostpaidOrg) error {
	n := notify.Notice{
		Org:      now.OrgID,
		Key:      "postpaid:" + id.New[id.Notice]().String(),
		Severity: notify.Info,
		Object:   now.OrgID.String(),
		Body:     now.Reason,
	}
	switch {
	case now.State == string(On) && was.State != string(On):
		n.Title = fmt.Sprintf("You can now pay afterwards, up to %s %s", now.CreditLimit.Plain(), now.Currency)
	case now.State == string(On) && now.CreditLimit != was.CreditLimit:
		n.Title = fmt.Sprintf("Your credit limit is now %s %s", now.CreditLimit.Plain(), now.Currency)
	case now.State == string(Ending) && was.State == string(On):
		n.Severity = notify.Warn
		n.Title = "You pay ahead again: add credit"
		n.Body += " Clusters that run on credit shut down cleanly at the end of their paid time, within an hour, unless " +
			"you add credit. What you used is billed."
	default:
		return nil
	}
	_, err := notify.Add(ctx, tx, n)
	return err
}

// Terms returns the org's; the zero State is Off.
func (p *Postpaid) Terms(ctx context.Context, org id.Org) (Terms, error) {
	return p.terms(ctx, p.d.Q, org)
}

func (p *Postpaid) terms(ctx context.Context, q *dbq.Queries, org id.Org) (Terms, error) {
	row, err := q.PostpaidOrg(ctx, org)
	if db.NoRows(err) {
		return Terms{Org: org, State: Off, Currency: p.cfg.Currency}, nil
	}
	if err != nil {
		return Terms{}, fmt.Errorf("read terms of %s: %w", org, err)
	}
	t := Terms{
		Org:      org,
		State:    State(row.State),
		Limit:    row.CreditLimit,
		Stopped:  row.Stopped,
		Reason:   row.Reason,
		Since:    &row.ChangedAt,
		Currency: row.Currency,
	}
	given, err := q.PostpaidWrittenOff(ctx, org)
	if err != nil {
		return Terms{}, fmt.Errorf("read write-offs of %s: %w", org, err)
	}
	t.WrittenOff = money.Nano(given)
	return t, p.use(ctx, q, &t)
}

// use fills in what of the limit is used.
func (p *Postpaid) use(ctx context.Context, q *dbq.Queries, t *Terms) error {
	b, err := ledger.OrgBalances(ctx, q, t.Org, t.Currency)
	if err != nil {
		return err
	}
	useOf(t, b)
	return nil
}

func useOf(t *Terms, b ledger.Balances) {
	t.Owed, t.Left = b.Owed, max(0, b.Available+b.Credit-b.Reserved)
	t.Used = b.Owed + max(0, -b.Available)
}

// All lists the orgs that pay afterwards or did, those after the given org (zero: from the first), at most limit. Only
// an admin may; fault: Forbidden.
func (p *Postpaid) All(ctx context.Context, who account.Principal, after id.Org, limit int) ([]Terms, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.ListPostpaidOrgs(ctx, pgtype.UUID{Bytes: after.UUID(), Valid: true}, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("list postpaid orgs: %w", err)
	}
	orgs := map[string][]id.Org{} // by currency: one, unless the platform's was changed
	for _, r := range rows {
		orgs[r.Currency] = append(orgs[r.Currency], r.OrgID)
	}
	have := map[id.Org]ledger.Balances{}
	for currency, of := range orgs {
		some, err := ledger.BalancesOf(ctx, p.d.Q, of, currency)
		if err != nil {
			return nil, err
		}
		maps.Copy(have, some)
	}
	out := make([]Terms, len(rows))
	for i, r := range rows {
		out[i] = Terms{
			Org:        r.OrgID,
			Name:       r.Name,
			State:      State(r.State),
			Limit:      r.CreditLimit,
			Stopped:    r.Stopped,
			Reason:     r.Reason,
			Since:      &r.ChangedAt,
			Currency:   r.Currency,
			WrittenOff: money.Nano(r.WrittenOff),
		}
		useOf(&out[i], have[r.OrgID])
	}
	return out, nil
}
