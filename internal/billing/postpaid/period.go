package postpaid

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// CreditPeriod is what a month comes to: the running one, or an invoice's.
type CreditPeriod = client.PostpaidPeriod

// CreditInvoice is an invoice at Stripe, in the state that was last read.
type CreditInvoice = client.PostpaidInvoice

// CreditLine is what was booked of a lease in a period.
type CreditLine = client.PostpaidLine

// CreditLines is what was used in a period, booked between its ends.
type CreditLines = client.PostpaidLines

// Running returns the org's running period; nil when it does not pay afterwards, or Stripe has yet to begin.
func (p *Postpaid) Running(ctx context.Context, org id.Org) (*CreditPeriod, error) {
	row, err := p.d.Q.PostpaidOrg(ctx, org)
	if db.NoRows(err) || err == nil && (row.PeriodStart == nil || row.PeriodEnd == nil || row.State == string(Off)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read period of %s: %w", org, err)
	}
	before, err := p.d.Q.PostpaidChargedBefore(ctx, org, *row.PeriodStart)
	if err != nil {
		return nil, fmt.Errorf("read period of %s: %w", org, err)
	}
	b, err := ledger.OrgBalances(ctx, p.d.Q, org, row.Currency)
	if err != nil {
		return nil, err
	}
	return &CreditPeriod{
		Start:    *row.PeriodStart,
		End:      *row.PeriodEnd,
		Charged:  row.Charged - money.Nano(before),
		Unbilled: unbilled(b.Available, b.Held),
		Currency: row.Currency,
	}, nil
}

// Invoices returns the org's, newest first, at most limit.
func (p *Postpaid) Invoices(ctx context.Context, org id.Org, limit int) ([]CreditInvoice, error) {
	rows, err := p.d.Q.ListPostpaidInvoices(ctx, org, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read invoices of %s: %w", org, err)
	}
	out := make([]CreditInvoice, len(rows))
	for i, r := range rows {
		out[i] = invoiceOf(r)
	}
	return out, nil
}

func invoiceOf(r dbq.PostpaidInvoice) CreditInvoice {
	t := taxOf(r)
	net := money.Nano(r.Total-r.Tax) * money.Cent
	if r.State == stripe.InvoiceDraft {
		net = money.Nano(r.Due) * money.Cent
	}
	return CreditInvoice{
		ID:       r.ID,
		Number:   r.Number,
		State:    r.State,
		Net:      net,
		Tax:      payment.ViewTax(t, t.Amount()),
		Total:    net + t.Amount(),
		Paid:     money.Nano(r.Paid) * money.Cent,
		Currency: r.Currency,
		Start:    r.PeriodStart,
		End:      r.PeriodEnd,
		Charged:  r.Charged,
		Failing:  r.State == "uncollectible" || r.State == "open" && r.Attempts > 0,
		URL:      r.URL,
	}
}

// maxLines bounds a list of leases.
const maxLines = 2000

// Lines returns what was used in the running period (invoice ""), or in an invoice's. Fault: NotFound.
func (p *Postpaid) Lines(ctx context.Context, org id.Org, invoice string) (CreditLines, error) {
	now, err := p.Running(ctx, org)
	if err != nil {
		return CreditLines{}, err
	}
	out := CreditLines{Currency: p.cfg.Currency, Items: []CreditLine{}}
	if invoice != "" {
		r, err := p.d.Q.PostpaidInvoice(ctx, invoice)
		if err != nil && !db.NoRows(err) {
			return out, fmt.Errorf("read invoice %s: %w", invoice, err)
		}
		if err != nil || r.OrgID != org {
			return out, fault.New(fault.NotFound, "invoice not found")
		}
		out.Start, out.End, out.Currency = r.PeriodStart, r.PeriodEnd, r.Currency
	} else if now != nil {
		out.Start, out.End, out.Currency = now.Start, now.End, now.Currency
	} else {
		return out, fault.New(fault.NotFound, "your organisation does not pay afterwards")
	}
	return out, p.lines(ctx, org, &out)
}

func (p *Postpaid) lines(ctx context.Context, org id.Org, out *CreditLines) error {
	rows, err := p.d.Q.PostpaidUsage(ctx, dbq.PostpaidUsageParams{
		FromTime: out.Start,
		OrgID:    org,
		Currency: out.Currency,
		ToTime:   out.End,
		MaxRows:  maxLines,
	})
	if err != nil {
		return fmt.Errorf("read usage of %s: %w", org, err)
	}
	for _, r := range rows {
		l := CreditLine{Amount: money.Nano(r.Amount)}
		if l.Lease, err = id.Parse[id.Lease](r.Lease); err != nil {
			return fmt.Errorf("read usage of %s: %w", org, err)
		}
		if l.Cluster, err = id.Parse[id.Cluster](r.Ref); err != nil {
			return fmt.Errorf("usage of %s: %w", org, err)
		}
		ran, err := p.d.Q.PostpaidRan(ctx, l.Lease, r.Since, r.LastAt)
		if err != nil {
			return fmt.Errorf("read when %s ran: %w", l.Lease, err)
		}
		if ran.ToMs > 0 {
			from, to := time.UnixMilli(ran.FromMs).UTC(), time.UnixMilli(ran.ToMs).UTC()
			l.RanFrom, l.RanTo, l.Late = &from, &to, from.Before(out.Start)
		}
		out.Used += l.Amount
		out.Items = append(out.Items, l)
	}
	stored, err := p.d.Q.PostpaidStorage(ctx, dbq.PostpaidStorageParams{
		OrgID:    org,
		Currency: out.Currency,
		FromTime: out.Start,
		ToTime:   out.End,
	})
	if err != nil {
		return fmt.Errorf("read storage of %s: %w", org, err)
	}
	out.Storage = money.Nano(stored)
	out.Used += out.Storage
	back, err := p.d.Q.PostpaidReturned(ctx, dbq.PostpaidReturnedParams{
		OrgID:    org,
		Currency: out.Currency,
		FromTime: out.Start,
		ToTime:   out.End,
	})
	if err != nil {
		return fmt.Errorf("read credits of %s: %w", org, err)
	}
	out.Returned = money.Nano(back)
	from, err := p.d.Q.PostpaidChargedBefore(ctx, org, out.Start)
	if err != nil {
		return fmt.Errorf("read charges of %s: %w", org, err)
	}
	to, err := p.d.Q.PostpaidChargedBefore(ctx, org, out.End)
	if err != nil {
		return fmt.Errorf("read charges of %s: %w", org, err)
	}
	out.Charged = money.Nano(to - from)
	return nil
}

// Pay charges the org's default card for an invoice that it did not pay. The outcome arrives from Stripe later. Faults:
// NotFound, Conflict (nothing is to be paid).
func (p *Postpaid) Pay(ctx context.Context, org id.Org, invoice string,
	once idem.Request) (string, idem.Outcome, error) {
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (string, error) {
		r, err := tx.Q.PostpaidInvoice(ctx, invoice)
		if err != nil && !db.NoRows(err) {
			return invoice, fmt.Errorf("read invoice %s: %w", invoice, err)
		}
		if err != nil || r.OrgID != org {
			return invoice, fault.New(fault.NotFound, "invoice not found")
		}
		if !invoiceOf(r).Failing {
			return invoice, fault.New(fault.Conflict, "there is nothing to pay: the invoice is %s", r.State)
		}
		rows, err := p.pay.Collect(ctx, tx, org, invoice)
		if err != nil {
			return invoice, err
		}
		p.sendAfter(ctx, tx, rows)
		return invoice, nil
	})
}
