package postpaid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// leastCents is the least that Stripe collects. An invoice below it would be marked as paid and carried on by Stripe's
// own balance of the customer; we carry it on ourselves.
const leastCents = 50

// order in which an invoice takes its states; news of an earlier one is old.
var order = map[string]int{
	stripe.InvoiceDraft:         1,
	stripe.InvoiceOpen:          2,
	stripe.InvoiceUncollectible: 3,
	stripe.InvoiceVoid:          4,
	stripe.InvoicePaid:          5,
}

// due returns what an invoice is to be, in cents: the ledger at its end, less what earlier invoices came to. Less than
// Stripe collects is left to the next one, and so is what was invoiced too much.
func due(charged money.Nano, before int64) int64 {
	cents := int64(charged/money.Cent) - before
	if cents < leastCents {
		return 0
	}
	return cents
}

// invoice applies the state of an invoice at Stripe: it makes a draft equal to the ledger and closes it, and books a
// payment or a loss. note is why nothing was done; "" if something was.
func (p *Postpaid) invoice(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice,
	t payment.BillTax) (note string, err error) {
	a, err := p.lock(ctx, tx, org, ledger.TaxPayable(p.cfg.Currency), ledger.BadDebt(p.cfg.Currency))
	if f := fault.From(err); f != nil && f.Kind == fault.NotFound {
		return "of an organisation that never paid afterwards", nil
	}
	if err != nil {
		return "", err
	}
	known, err := tx.Q.PostpaidInvoice(ctx, in.ID)
	fresh := db.NoRows(err)
	if err != nil && !fresh {
		return "", fmt.Errorf("read invoice %s: %w", in.ID, err)
	}
	switch {
	case in.Currency != a.row.Currency:
		return "", fmt.Errorf("invoice %s is in %s, not in %s", in.ID, in.Currency, a.row.Currency)
	case fresh && in.Total == 0 && in.Metered == 0 && in.Status == stripe.InvoicePaid:
		return "of nothing", nil // the one that begins a subscription
	case !fresh && order[in.Status] < order[known.State]:
		return "old news", nil
	}
	b, err := p.billOf(ctx, tx.Q, a.row, in)
	if err != nil {
		return "", err
	}
	if fresh {
		b, err = b.decide(in, t)
	} else {
		b, err = b.redecide(known, in, t)
	}
	if err != nil {
		return "", err
	}
	if err := tx.Q.SavePostpaidInvoice(ctx, b.row(org, in)); err != nil {
		return "", fmt.Errorf("save invoice %s: %w", in.ID, err)
	}
	if in.Status == stripe.InvoiceDraft {
		return "", p.close(ctx, tx, a, in, b)
	}
	if err := p.bookEnd(ctx, tx, a, in, b, known.State); err != nil {
		return "", err
	}
	if err := p.notifyInvoice(ctx, tx, a, in, b.tax); err != nil {
		return "", err
	}
	return "", p.wrapUp(ctx, tx, a)
}

// chargedBy returns what was charged before the end of an invoice's period; all of it when it is the last of an org
// that was switched off.
func (p *Postpaid) chargedBy(ctx context.Context, q *dbq.Queries, org dbq.PostpaidOrg,
	in stripe.Invoice) (money.Nano, error) {
	if org.UnsubscribedAt != nil && !in.PeriodEnd.Before(org.UnsubscribedAt.Truncate(time.Second)) {
		return org.Charged, nil
	}
	n, err := q.PostpaidChargedBefore(ctx, org.OrgID, in.PeriodEnd)
	if err != nil {
		return 0, fmt.Errorf("read charges before %s: %w", in.PeriodEnd, err)
	}
	return money.Nano(n), nil
}

// close makes a draft equal to the ledger by one line, adds its tax by another, and finalises it.
func (p *Postpaid) close(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, b bill) error {
	var lines []payment.BillLine
	if off := b.due - (in.Total - taxLine(in)); off != 0 {
		what := "Residue carried from earlier periods"
		if off < 0 {
			what = "Residue carried to the next period"
		}
		lines = append(lines, payment.BillLine{Ref: "residue", Description: what, Cents: off})
	}
	if l, any := b.line(in.Currency); any {
		lines = append(lines, l)
	}
	rows, err := p.pay.Close(ctx, tx, a.row.OrgID, in.ID, lines)
	if err != nil {
		return err
	}
	p.sendAfter(ctx, tx, rows)
	return nil
}

// paidWith returns the entry of what an invoice was paid with; any is false when nothing came.
func (p *Postpaid) paidWith(a *acct, in stripe.Invoice) (e ledger.Entry, any bool) {
	if in.Status == stripe.InvoicePaid && in.OutOfBand && in.Total > 0 { // to the platform's bank, not through Stripe
		return ledger.Entry{
			Kind: "invoice_paid",
			Key:  reconcile.InvoiceKey(in.ID),
			Ref:  a.row.OrgID.String(),
			Memo: in.Number + ", by bank",
			Transfers: []ledger.Transfer{{
				Debit: ledger.Bank(in.Currency), Credit: a.receivable(), Amount: money.Nano(in.Total) * money.Cent}},
		}, true
	}
	return payment.InvoicePaid(a.row.OrgID, in)
}

// notifyInvoice notifies the org of an invoice, and of one that its card did not pay.
func (p *Postpaid) notifyInvoice(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, t tax.Tax) error {
	amount := fmt.Sprintf("%s %s", (money.Nano(in.Total) * money.Cent).Plain(), in.Currency)
	n := notify.Notice{Org: a.row.OrgID, Object: a.row.OrgID.String()}
	switch {
	case in.Total == 0:
		return nil
	case in.Status == stripe.InvoiceOpen && in.Attempts > 0, in.Status == stripe.InvoiceUncollectible:
		n.Key, n.Severity = fmt.Sprintf("invoice:%s:unpaid:%d", in.ID, in.Attempts), notify.Bad
		n.Title = fmt.Sprintf("Invoice %s of %s could not be collected", in.Number, amount)
		n.Body = "You get no more credit until it is paid: clusters that run on credit shut down cleanly at the end of " +
			"their paid time. Pay it on the billing page, or change the card there."
	case in.Status == stripe.InvoiceOpen || in.Status == stripe.InvoicePaid:
		n.Key, n.Severity = "invoice:"+in.ID, notify.Info
		n.Title = fmt.Sprintf("Invoice %s: %s", in.Number, amount)
		with := ""
		if t.Cents > 0 {
			with = fmt.Sprintf(", with %s %s of %s", t.Amount().Plain(), in.Currency, tax.Label(t.Name, t.PPM))
		}
		n.Body = fmt.Sprintf("For what was used on credit from %s to %s%s. Your default card is charged.",
			in.PeriodStart.Format("2 January 2006"), in.PeriodEnd.Format("2 January 2006"), with)
	default:
		return nil
	}
	_, err := notify.Add(ctx, tx, n)
	return err
}

// takenBack locks an org, calls book to book what was taken back of an invoice's payment, or arrived again, and applies
// the consequences.
func (p *Postpaid) takenBack(ctx context.Context, tx *db.Tx, org id.Org, invoice string, accounts []ledger.Account,
	book func(context.Context, *ledger.Locked, tax.Tax) error) error {
	a, err := p.lock(ctx, tx, org, append(accounts, ledger.TaxPayable(p.cfg.Currency), ledger.BadDebt(p.cfg.Currency))...)
	if err != nil {
		return err
	}
	var of tax.Tax
	r, err := tx.Q.PostpaidInvoice(ctx, invoice)
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("read invoice %s: %w", invoice, err)
	}
	if err == nil && r.State != stripe.InvoiceDraft {
		of = taxOf(r)
	}
	if err := book(ctx, a.locked, of); err != nil {
		return fmt.Errorf("book what was taken back of %s: %w", invoice, err)
	}
	if err := p.regain(ctx, tx, a, r); err != nil {
		return err
	}
	return p.wrapUp(ctx, tx, a)
}

// queueQuestions names orgs whose billing cannot be read from Stripe among the dead letters.
const queueQuestions = "postpaid_poll"

const (
	refreshEvery = 10 * time.Minute
	refreshBatch = 50
)

// Refresh reads the billing of orgs of which an event is overdue from Stripe, in case every event was lost, and returns
// how many it read. Run it every minute or so.
func (p *Postpaid) Refresh(ctx context.Context) (int, error) { return p.refresh(ctx, refreshEvery) }

func (p *Postpaid) refresh(ctx context.Context, after time.Duration) (n int, err error) {
	rows, err := p.d.Q.ClaimPostpaidQuestions(ctx, after.Seconds(), refreshBatch)
	if err != nil {
		return 0, fmt.Errorf("claim subscriptions to refresh: %w", err)
	}
	var errs []error
	for _, r := range rows {
		if err := p.pay.RefreshBilling(ctx, r.OrgID, r.Subscription); err != nil {
			if !stripe.IsBackOff(err) {
				_, failed := notify.DeadLetter(ctx, p.d, queueQuestions, r.OrgID.String(), err)
				errs = append(errs, failed)
			}
			errs = append(errs, err)
			continue
		}
		errs = append(errs, notify.DropDeadLetter(ctx, p.d.Q, queueQuestions, r.OrgID.String()))
		n++
	}
	return n, errors.Join(errs...)
}
