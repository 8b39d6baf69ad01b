package tax

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// Report is the taxes of a period: what has to be declared where.
type Report client.TaxReport

// Declared is what was sold to one country at one rate for one reason; by customer where the reverse charge applies, as
// the recapitulative statement wants it.
type Declared = client.DeclaredTax

// ReportOf sums the book over a period: 2026, 2026-Q1 or 2026-01, in UTC. What goes back counts in the period in which
// it does. Fault: Invalid.
func ReportOf(ctx context.Context, q *dbq.Queries, currency, period string) (Report, error) {
	from, to, err := span(period)
	if err != nil {
		return Report{}, err
	}
	r := Report{Period: period, From: from, To: to, Currency: currency, Lines: []Declared{}}
	rows, err := q.TaxReport(ctx, currency, from, to)
	if err != nil {
		return r, fmt.Errorf("read report of %s: %w", period, err)
	}
	for _, x := range rows {
		d := Declared{
			Country:   x.Country,
			Reason:    Reason(x.Reason),
			Name:      x.Name,
			Percent:   Percent(int64(x.Ppm)),
			VATID:     x.VatID,
			Sales:     x.Sales,
			Sold:      money.Nano(x.Sold),
			Charged:   money.Nano(x.Charged),
			Returned:  money.Nano(x.Returned),
			GivenBack: money.Nano(x.GivenBack),
		}
		d.Net, d.Tax = d.Sold-d.Returned, d.Charged-d.GivenBack
		r.Net, r.Tax = r.Net+d.Net, r.Tax+d.Tax
		r.Lines = append(r.Lines, d)
	}
	if r.Offices, err = offices(ctx, q, r); err != nil {
		return r, err
	}
	b, err := q.TaxBooked(ctx, currency)
	if err != nil {
		return r, fmt.Errorf("read report of %s: %w", period, err)
	}
	r.Book, r.Payable = money.Nano(b.Book), money.Nano(b.Payable)
	return r, nil
}

func span(period string) (from, to time.Time, err error) {
	months := 12
	year, rest, more := strings.Cut(period, "-")
	quarter, isQuarter := strings.CutPrefix(rest, "Q")
	switch {
	case !more:
		from, err = time.Parse("2006", year)
	case isQuarter:
		months = 3
		n, qerr := strconv.Atoi(quarter)
		if from, err = time.Parse("2006", year); err == nil && (qerr != nil || n < 1 || n > 4 || len(quarter) != 1) {
			err = fmt.Errorf("quarter %q", quarter)
		}
		from = from.AddDate(0, 3*(n-1), 0)
	default:
		months = 1
		from, err = time.Parse("2006-01", period)
	}
	if err != nil || from.Year() < 2000 {
		return from, to, fault.InvalidField("period", "must be a year, quarter or month, such as 2026, 2026-Q1 or 2026-01")
	}
	return from, from.AddDate(0, months, 0), nil
}

// CSV writes the lines as a table with a heading.
func (r Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"period", "country", "reason", "tax", "percent", "vat_id", "sales", "sold", "charged", "returned",
		"given_back", "net", "tax_due", "currency"}}
	for _, d := range r.Lines {
		rows = append(rows, []string{r.Period, d.Country, string(d.Reason), d.Name, d.Percent, d.VATID,
			strconv.FormatInt(d.Sales, 10), d.Sold.String(), d.Charged.String(),
			d.Returned.String(), d.GivenBack.String(), d.Net.String(), d.Tax.String(), r.Currency})
	}
	return out.WriteAll(rows)
}
