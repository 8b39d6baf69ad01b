package tax

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Office is what a country's tax office gets for a period.
type Office = client.TaxOffice

// offices returns the countries in which tax was charged, given back or paid in a period.
func offices(ctx context.Context, q *dbq.Queries, r Report) ([]Office, error) {
	paid, err := q.TaxRemittedByCountry(ctx, r.Currency, r.To, r.From)
	if err != nil {
		return nil, fmt.Errorf("read remitted tax of %s: %w", r.Period, err)
	}
	out := []Office{}
	of := func(country string) *Office {
		i := slices.IndexFunc(out, func(o Office) bool { return o.Country == country })
		if i < 0 {
			i, out = len(out), append(out, Office{Country: country})
		}
		return &out[i]
	}
	for _, d := range r.Lines {
		if d.Charged != 0 || d.GivenBack != 0 {
			of(d.Country).Tax += d.Tax
		}
	}
	for _, p := range paid {
		of(p.Country).Remitted = money.Nano(p.Amount)
	}
	for i := range out {
		out[i].Left = max(0, out[i].Tax-out[i].Remitted)
	}
	slices.SortFunc(out, func(a, b Office) int { return strings.Compare(a.Country, b.Country) })
	return out, nil
}

// Remittance is a payment to the tax office of a country for a period.
type Remittance struct {
	Period  string // as ReportOf takes it; it is over
	Country string // ISO 3166-1 alpha-2, as the report names it
	Amount  money.Nano
	Reason  string // for the audit log, such as the reference of the bank's transfer
}

// Remit writes a payment to a tax office down and returns its number, which makes the key of the ledger's entry: call
// it in the transaction that moves the amount out of tax_payable. Never more is paid than is owed to that country for
// that period, less what was paid for any period that has time in common with it. Faults: Invalid, Conflict (the period
// is not over).
func Remit(ctx context.Context, tx *db.Tx, who id.User, currency string, m Remittance) (number int64, err error) {
	if err := tx.Q.LockTaxRemittances(ctx, m.Country, currency); err != nil {
		return 0, fmt.Errorf("remit: %w", err)
	}
	now, err := tx.Now(ctx) // after the lock
	if err != nil {
		return 0, err
	}
	r, err := ReportOf(ctx, tx.Q, currency, m.Period)
	if err != nil {
		return 0, err
	}
	if now.Before(r.To) {
		return 0, fault.New(fault.Conflict, "the period ends on %s: what is owed for it may still change",
			r.To.Add(-time.Second).Format("2 January 2006"))
	}
	var left money.Nano
	for _, o := range r.Offices {
		if o.Country == m.Country {
			left = o.Left
		}
	}
	var bad fault.Fields
	switch {
	case left == 0:
		bad.Add("country", "nothing is left to remit there for %s", m.Period)
	case m.Amount <= 0 || m.Amount > left:
		bad.Add("amount", "must be above zero and at most %s, what is left of the period", left.Plain())
	case m.Amount%money.Cent != 0:
		bad.Add("amount", "must be whole cents")
	}
	if m.Reason = strings.TrimSpace(m.Reason); m.Reason == "" || len(m.Reason) > 500 {
		bad.Add("reason", "must identify the payment in at most 500 bytes; the audit log keeps it")
	}
	if err := bad.Err(); err != nil {
		return 0, err
	}
	number, err = tx.Q.InsertTaxRemittance(ctx, dbq.InsertTaxRemittanceParams{
		Country:  m.Country,
		Period:   m.Period,
		FromTime: r.From,
		ToTime:   r.To,
		Amount:   m.Amount,
		Currency: currency,
		Reason:   m.Reason,
		UserID:   who,
	})
	if err != nil {
		return 0, fmt.Errorf("remit to %s: %w", m.Country, err)
	}
	return number, nil
}
