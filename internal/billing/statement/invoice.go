package statement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Party is one side of a document.
type Party = account.Party

// Invoice is the statement of what an org used in one calendar month of its zone. It bears no tax: that was charged
// when credit was paid in, and is on the receipts of those payments, which are listed too. Until it is final it is a
// draft, computed at each request from the same segments and entries as the bill. When it is first final, it is issued:
// stored as it is, parties, lines and sums, and never changed. What is given back later is on the invoice of the month
// in which that happens, as a credit that names what it is for.
type Invoice struct {
	client.Invoice

	Previous, Next string `json:"-"` // months that can be asked for; Next is "" in the running one
}

// InvoiceCredit is what came back for usage that was charged, in this month or before.
type InvoiceCredit = client.InvoiceCredit

// InvoicePayment is credit that was paid in, or went back, with its tax.
type InvoicePayment = client.InvoicePayment

// Notes returns the sentences that belong to the payments, each once.
func (v Invoice) Notes() (out []string) {
	for _, p := range v.Payments {
		if p.Note != "" && !slices.Contains(out, p.Note) {
			out = append(out, p.Note)
		}
	}
	return out
}

// late is for how long after a month what its leases owe may still arrive: hosts have a day from a lease's end, and a
// day more for settling.
const late = 48 * time.Hour

// InvoiceOf returns the org's invoice of a month, YYYY-MM ("" is the running one). orgName stands on it while the org
// has given no legal name. Faults: NotFound (month is none or has not begun), TooLarge.
func (s *Statements) InvoiceOf(ctx context.Context, org id.Org, orgName, month string) (Invoice, error) {
	zone, err := zoneOf(ctx, s.d.Q, org)
	if err != nil {
		return Invoice{}, err
	}
	now, err := s.d.Q.DatabaseTime(ctx)
	if err != nil {
		return Invoice{}, fmt.Errorf("read the clock: %w", err)
	}
	if month == "" {
		month = now.In(zone).Format("2006-01")
	}
	first, err := time.ParseInLocation("2006-01", month, zone)
	if err != nil || first.Year() < 2000 || first.After(now) {
		return Invoice{}, fault.New(fault.NotFound, "invoice of this month not found: ask for one such as 2026-01 that "+
			"has begun")
	}
	if v, err := issued(ctx, s.d.Q, org, s.currency, first, now); err != nil || v != nil {
		return deref(v), err
	}
	v, err := s.draft(ctx, org, orgName, first, now)
	if err != nil || !v.Final || len(v.Lines)+len(v.Credits)+len(v.Payments) == 0 {
		return v, err
	}
	return v.issue(ctx, s.d.Q, org, first, now)
}

// draft returns the invoice of the month that begins at first, as it stands now.
func (s *Statements) draft(ctx context.Context, org id.Org, orgName string, first, now time.Time) (Invoice, error) {
	end := first.AddDate(0, 1, 0)
	p, err := s.Statement(ctx, org, first.Format(time.DateOnly), end.AddDate(0, 0, -1).Format(time.DateOnly),
		"cluster")
	if err != nil {
		return Invoice{}, err
	}
	v := Invoice{Invoice: client.Invoice{
		Number:   number(org, first),
		Month:    first.Format("2006-01"),
		From:     p.From,
		To:       p.To,
		Zone:     p.Zone,
		Final:    !end.Add(late).After(now),
		Merchant: s.merchant,
		Customer: Party{Name: orgName, Address: []string{}},
		Currency: s.currency,
		Lines:    p.Groups,
		Payments: []InvoicePayment{},
		Usage:    p.Total,
		EnergyWh: p.EnergyWh,
	}}
	if !end.After(now) {
		v.Issued = end.Format(time.DateOnly)
	}
	v.neighbours(first, now)
	for _, l := range p.Leases {
		v.Final = v.Final && l.Settled
	}
	v.Credits, v.Credited, v.Total = p.Credits, p.Credited, p.Net
	if err := v.paid(ctx, s.d.Q, org, first, end); err != nil {
		return Invoice{}, err
	}
	if v.OnCredit, err = onCredit(ctx, s.d.Q, org, first, end); err != nil {
		return Invoice{}, err
	}
	legal, err := account.LegalOf(ctx, s.d.Q, org)
	if err != nil {
		return Invoice{}, err
	}
	if v.CustomerKnown = legal.Known(); v.CustomerKnown {
		v.Customer = Party{Name: legal.Name, Address: legal.Address, Country: legal.Country, VATID: legal.VATID}
	}
	return v, nil
}

// neighbours sets the months before and after.
func (v *Invoice) neighbours(first, now time.Time) {
	v.Previous = first.AddDate(0, -1, 0).Format("2006-01")
	if next := first.AddDate(0, 1, 0); !next.After(now) {
		v.Next = next.Format("2006-01")
	}
}

// issue stores the invoice for good, unless another was issued meanwhile, which stands.
func (v *Invoice) issue(ctx context.Context, q *dbq.Queries, org id.Org, first, now time.Time) (Invoice, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return Invoice{}, fmt.Errorf("invoice %s: %w", v.Number, err)
	}
	if err := q.IssueInvoice(ctx, dbq.IssueInvoiceParams{
		OrgID:    org,
		Month:    v.Month,
		Currency: v.Currency,
		Number:   v.Number,
		Content:  content,
	}); err != nil {
		return Invoice{}, fmt.Errorf("issue invoice %s: %w", v.Number, err)
	}
	kept, err := issued(ctx, q, org, v.Currency, first, now)
	return deref(kept), err
}

// issued returns the invoice as it was issued, nil while it was not.
func issued(ctx context.Context, q *dbq.Queries, org id.Org, currency string, first, now time.Time) (*Invoice, error) {
	content, err := q.IssuedInvoice(ctx, org, first.Format("2006-01"), currency)
	if db.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read invoice of %s: %w", org, err)
	}
	if string(content) == `{"erased": true}` {
		return nil, fault.New(fault.NotFound, "the statement was erased when its retention was over")
	}
	var v Invoice
	if err := json.Unmarshal(content, &v); err != nil {
		return nil, fmt.Errorf("read invoice of %s: %w", org, err)
	}
	if v.Payments == nil { // issued before payments stood on it
		v.Payments = []InvoicePayment{}
	}
	v.neighbours(first, now)
	return &v, nil
}

func deref(v *Invoice) Invoice {
	if v == nil {
		return Invoice{}
	}
	return *v
}

// monthsBack is for how many closed months IssueInvoices still looks: a lease may be frozen for weeks.
const monthsBack = 3

// IssueInvoices issues the invoices of the last three calendar months that are final and not issued yet, so that they
// name the parties as they were when the month was closed and not when the invoice is first read. Run it every hour;
// any replica may. It returns how many it checked.
func (s *Statements) IssueInvoices(ctx context.Context) (n int, err error) {
	now, err := s.d.Q.DatabaseTime(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	now = now.UTC()
	var errs []error
	for back := 1; back <= monthsBack && ctx.Err() == nil; back++ {
		first := time.Date(now.Year(), now.Month()-time.Month(back), 1, 0, 0, 0, 0, time.UTC)
		did, err := s.issueMonth(ctx, first)
		n, errs = n+did, append(errs, err)
	}
	return n, errors.Join(errs...)
}

func (s *Statements) issueMonth(ctx context.Context, first time.Time) (n int, err error) {
	const anyZone = 24 * time.Hour // a zone's month may begin and end so much earlier or later
	month := first.Format("2006-01")
	orgs, err := s.d.Q.OrgsToInvoice(ctx, dbq.OrgsToInvoiceParams{
		FromTime: first.Add(-anyZone),
		ToTime:   first.AddDate(0, 1, 0).Add(anyZone),
		Month:    month,
		Currency: s.currency,
	})
	if err != nil {
		return 0, fmt.Errorf("list orgs to invoice: %w", err)
	}
	var errs []error
	for _, o := range orgs {
		if ctx.Err() != nil {
			break
		}
		_, err := s.InvoiceOf(ctx, o.ID, o.Name, month)
		errs = append(errs, err)
		n++
	}
	return n, errors.Join(errs...)
}

// creditsOf returns what came back to an org between two times for usage that it was charged, and the sum.
func creditsOf(ctx context.Context, q *dbq.Queries, org id.Org, currency string,
	from, to time.Time) (out []InvoiceCredit, sum money.Nano, err error) {
	rows, err := q.CreditsForUsage(ctx, dbq.CreditsForUsageParams{
		OrgID:    org,
		Currency: currency,
		FromID:   firstID(from),
		FromTime: from,
		ToTime:   to,
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read credits of %s: %w", org, err)
	}
	out = make([]InvoiceCredit, len(rows))
	for i, r := range rows {
		out[i] = InvoiceCredit{
			ID:     r.ID,
			At:     r.CreatedAt.UTC(),
			Kind:   r.Kind,
			Why:    r.Memo,
			Ref:    r.Ref,
			Amount: money.Nano(r.Amount),
		}
		sum += out[i].Amount
	}
	return out, sum, nil
}

func (v *Invoice) paid(ctx context.Context, q *dbq.Queries, org id.Org, from, to time.Time) error {
	rows, err := q.TaxEntriesOfOrg(ctx, dbq.TaxEntriesOfOrgParams{
		OrgID:    org,
		Currency: v.Currency,
		FromTime: from,
		ToTime:   to,
	})
	if err != nil {
		return fmt.Errorf("read payments of %s: %w", org, err)
	}
	for _, r := range rows {
		reason := tax.Reason(r.Reason)
		v.Payments = append(v.Payments, InvoicePayment{
			Number:   fmt.Sprintf("T-%d", r.ID),
			Document: document.Number(document.Series(r.Series), r.Year, r.Number),
			At:       r.CreatedAt.UTC(),
			Kind:     tax.Kind(r.Kind),
			Ref:      r.Ref,
			Net:      r.Net,
			Percent:  tax.Percent(int64(r.Ppm)),
			Name:     r.Name,
			Country:  r.Country,
			VATID:    r.VatID,
			Reason:   reason,
			Note:     tax.Note(reason, r.Country),
			Tax:      r.Tax,
			Total:    r.Net + r.Tax,
		})
		v.Paid, v.Tax = v.Paid+r.Net, v.Tax+r.Tax
	}
	return nil
}

// onCredit returns what an org that pays afterwards was billed between two times.
func onCredit(ctx context.Context, q *dbq.Queries, org id.Org, from, to time.Time) (money.Nano, error) {
	until, err := q.PostpaidChargedBefore(ctx, org, to)
	if err != nil {
		return 0, fmt.Errorf("read charges of %s: %w", org, err)
	}
	before, err := q.PostpaidChargedBefore(ctx, org, from)
	if err != nil {
		return 0, fmt.Errorf("read charges of %s: %w", org, err)
	}
	return money.Nano(until - before), nil
}

// number returns the invoice's: one org has one invoice a month, so the two name it for good.
func number(org id.Org, month time.Time) string {
	return "M-" + month.Format("200601") + "-" + strings.ToUpper(strings.ReplaceAll(org.UUID().String(), "-", "")[16:])
}
